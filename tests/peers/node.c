/* Radio node of the node link, version 1 (docs/reference/node-link.md).
 *
 * The first part is the protocol: no heap, no clock, no operating system; it calls only the three
 * platform_* functions and can be put on a microcontroller as it is. The second part stands in for
 * the board: a pseudo-terminal for the serial line, UDP datagrams on loopback for the air. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- Protocol: interface -------------------------------------------------------------------- */

enum { LINK_PACKET_MAX = 255, LINK_NAME_MAX = 32 };  /* what common radio chips hold */

void link_start(uint32_t boot_id, const char *name, uint32_t now_ms);
void link_receive(uint8_t byte);
void link_tick(uint32_t now_ms);
void link_heard(const uint8_t *packet, size_t length, int rssi, int snr);
void link_air_done(bool transmitted, const char *reason);
void link_status(int signal, int battery_mv, int battery_percent, bool charging);

void platform_write_line(const uint8_t *bytes, size_t length);
bool platform_air_start(const uint8_t *packet, size_t length);  /* false: not free, ask again */
void platform_note(const char *text);  /* for a debug console; may do nothing */

/* ---- Protocol: CRC, COBS -------------------------------------------------------------------- */

enum {
    VERSION = 1, CODED_MAX = 512, HEAD = 4, TRAILER = 4, BODY_MAX = 320,
    WINDOW = 4, OUT_SLOTS = 16, AIR_SLOTS = 8, TRIES = 3,
    RESEND_MS = 1000, HELLO_MS = 1000, STATUS_MS = 10000, GIVE_UP_MS = 30000,
    FLAG_URGENT = 1, FLAG_WANTED = 2
};
enum { HELLO, ACK, SEND, RESULT, HEARD, STATUS, LOG };
enum { UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE };
enum { CBOR_FALSE = 20, CBOR_TRUE = 21, CBOR_NULL = 22 };

/* Bit by bit: at 115200 baud a table would buy nothing for its kilobyte. */
static uint32_t crc32_of(const uint8_t *bytes, size_t length) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}

static size_t cobs_encode(const uint8_t *in, size_t length, uint8_t *out) {
    size_t code_at = 0, end = 1;
    for (size_t i = 0; i < length; i++) {
        if (in[i] != 0)
            out[end++] = in[i];
        if (in[i] == 0 || end - code_at == 255) {
            out[code_at] = (uint8_t)(end - code_at);
            code_at = end++;
        }
    }
    out[code_at] = (uint8_t)(end - code_at);
    return end;
}

/* Works in place, as what is written never overtakes what is read. Zero means damage: no frame is
 * that short. A last part of 254 bytes may or may not be followed by an empty one. */
static size_t cobs_decode(uint8_t *bytes, size_t length) {
    size_t from = 0, to = 0;
    while (from < length) {
        size_t code = bytes[from++];
        if (code == 0 || code - 1 > length - from)
            return 0;
        memmove(bytes + to, bytes + from, code - 1);
        from += code - 1;
        to += code - 1;
        if (code != 255 && from < length)
            bytes[to++] = 0;
    }
    return to;
}

/* ---- Protocol: CBOR ------------------------------------------------------------------------- */

struct reader { const uint8_t *at, *end; bool bad; };
struct writer { uint8_t bytes[BODY_MAX]; size_t length; bool bad; };

static size_t left(const struct reader *r) { return (size_t)(r->end - r->at); }

static unsigned read_head(struct reader *r, uint64_t *value) {
    *value = 0;
    if (r->bad || left(r) == 0) {
        r->bad = true;
        return SIMPLE;
    }
    unsigned major = *r->at >> 5, info = *r->at++ & 31u;
    size_t size = info < 24 ? 0 : (size_t)1 << (info - 24);
    if (info > 27 || size > left(r)) {  /* 28 up: reserved, or of indefinite length */
        r->bad = true;
        return SIMPLE;
    }
    if (size == 0)
        *value = info;
    while (size-- > 0)
        *value = *value << 8 | *r->at++;
    return major;
}

static uint64_t read_expected(struct reader *r, unsigned major) {
    uint64_t value;
    if (read_head(r, &value) != major)
        r->bad = true;
    return r->bad ? 0 : value;
}

static const uint8_t *read_string(struct reader *r, unsigned major, size_t *length) {
    uint64_t size = read_expected(r, major);
    const uint8_t *start = r->at;
    if (size > left(r)) {
        r->bad = true;
        size = 0;
    }
    r->at += size;
    *length = (size_t)size;
    return start;
}

/* Counts what is still to come instead of calling itself, so that nesting costs no stack. */
static void skip_item(struct reader *r) {
    for (uint64_t missing = 1; missing > 0 && !r->bad; missing--) {
        uint64_t value;
        unsigned major = read_head(r, &value);
        bool counts = major >= BYTES && major <= MAP;
        if (r->bad || (counts && value > left(r)))
            r->bad = true;
        else if (counts && major <= TEXT)
            r->at += value;
        else if (counts || major == TAG)
            missing += major == TAG ? 1 : major == MAP ? 2 * value : value;
        if (missing - 1 > left(r))  /* each item has a byte at least */
            r->bad = true;
    }
}

static void put(struct writer *w, const void *bytes, size_t length) {
    if (length > sizeof w->bytes - w->length) {
        w->bad = true;
        return;
    }
    memcpy(w->bytes + w->length, bytes, length);
    w->length += length;
}

static void put_head(struct writer *w, unsigned major, uint64_t value) {
    unsigned info = value < 24 ? (unsigned)value : value <= 0xff ? 24 : value <= 0xffff ? 25
                  : value <= 0xffffffffu ? 26 : 27;
    uint8_t first = (uint8_t)(major << 5 | info);
    put(w, &first, 1);
    for (int shift = info < 24 ? 0 : 8 << (info - 24); shift > 0; shift -= 8) {
        uint8_t byte = (uint8_t)(value >> (shift - 8));
        put(w, &byte, 1);
    }
}

static void put_int(struct writer *w, int value) {
    put_head(w, value < 0 ? NEGATIVE : UINT, (uint64_t)(value < 0 ? -1 - value : value));
}

static void put_bool(struct writer *w, bool value) {
    put_head(w, SIMPLE, value ? CBOR_TRUE : CBOR_FALSE);
}

static void put_string(struct writer *w, unsigned major, const void *bytes, size_t length) {
    put_head(w, major, length);
    put(w, bytes, length);
}

static void put_text(struct writer *w, const char *text) {
    put_string(w, TEXT, text, strlen(text));
}

static struct writer new_array(unsigned members) {
    struct writer w = {.length = 0};
    put_head(&w, ARRAY, members);
    return w;
}

/* ---- Protocol: state and frames out --------------------------------------------------------- */

struct waiting {
    uint64_t number;
    uint32_t since;
    uint16_t length;
    bool urgent, tried;
    uint8_t packet[LINK_PACKET_MAX];
};

static struct {
    uint32_t now, boot_id, hello_at, sent_at, status_at, peer_boot_id;
    char name[LINK_NAME_MAX + 1];
    bool open, peer_known, status_due, status_sent, log_sent, on_air, too_long;
    uint8_t taken, first_sequence;   /* the last of the peer's; that of out[out_first] */
    int status[4];
    unsigned peer_window, out_first, out_count, in_flight, tries, air_count;
    struct { uint8_t type; struct writer body; } out[OUT_SLOTS];  /* a ring */
    struct waiting air[AIR_SLOTS];   /* in the order of transmission */
    uint8_t coded[CODED_MAX];
    size_t coded_length;
} self;

static void send_frame(unsigned type, unsigned flags, uint8_t sequence, const struct writer *body) {
    uint8_t raw[HEAD + BODY_MAX + TRAILER] = {
        (uint8_t)(VERSION << 4 | type), (uint8_t)flags, sequence, self.taken};
    uint8_t coded[sizeof raw + sizeof raw / 254 + 2];
    if (body->bad) {
        platform_note("frame too long to send");
        return;
    }
    memcpy(raw + HEAD, body->bytes, body->length);
    size_t length = HEAD + body->length;
    uint32_t crc = crc32_of(raw, length);
    for (int shift = 24; shift >= 0; shift -= 8)
        raw[length++] = (uint8_t)(crc >> shift);
    length = cobs_encode(raw, length, coded);
    coded[length++] = 0;
    platform_write_line(coded, length);
}

static void send_hello(bool wanted) {
    const uint32_t numbers[6] = {VERSION, VERSION, self.boot_id, WINDOW, LINK_PACKET_MAX, 0};
    struct writer w = new_array(8);
    if (wanted) {
        /* They end whatever half a frame is still on the line. */
        static const uint8_t zeros[2] = {0, 0};
        platform_write_line(zeros, sizeof zeros);
        self.hello_at = self.now;
    }
    for (int i = 0; i < 6; i++)
        put_head(&w, UINT, numbers[i]);
    put_text(&w, self.name);
    put_text(&w, "1.0.0");
    send_frame(HELLO, wanted ? FLAG_WANTED : 0, 0, &w);
}

static void send_log(int level, const char *text) {
    struct writer w = new_array(2);
    put_int(&w, level);
    put_text(&w, text);
    send_frame(LOG, 0, 0, &w);
}

static void send_status_when_due(void) {
    if (!self.open || !self.status_due
        || (self.status_sent && self.now - self.status_at < STATUS_MS))
        return;
    struct writer w = new_array(5);
    for (int i = 0; i < 3; i++)
        put_int(&w, self.status[i]);
    put_bool(&w, self.status[3] != 0);
    put_head(&w, ARRAY, 0);
    send_frame(STATUS, 0, 0, &w);
    self.status_due = false;
    self.status_sent = true;
    self.status_at = self.now;
}

static void send_numbered(unsigned index) {
    unsigned slot = (self.out_first + index) % OUT_SLOTS;
    uint8_t sequence = (uint8_t)(self.first_sequence + index);
    send_frame(self.out[slot].type, 0, sequence, &self.out[slot].body);
}

static void fill_window(void) {
    while (self.open && self.in_flight < self.out_count && self.in_flight < self.peer_window) {
        if (self.in_flight == 0) {
            self.sent_at = self.now;
            self.tries = 1;
        }
        send_numbered(self.in_flight++);
    }
}

static void resend(void) {
    for (unsigned i = 0; i < self.in_flight; i++)
        send_numbered(i);
    self.sent_at = self.now;
}

/* Only a count within what is on its way can be meant: all else is older than that. */
static void acknowledged(uint8_t sequence) {
    unsigned count = (uint8_t)(sequence - self.first_sequence + 1);
    if (count == 0 || count > self.in_flight)
        return;
    self.out_first = (self.out_first + count) % OUT_SLOTS;
    self.out_count -= count;
    self.in_flight -= count;
    self.first_sequence = (uint8_t)(self.first_sequence + count);
    self.sent_at = self.now;
    self.tries = 1;
}

/* A Result must never be lost, so each packet that waits for the air has a slot kept for it. */
static bool has_free_slot(void) { return self.out_count + self.air_count < OUT_SLOTS; }

static void append(uint8_t type, const struct writer *body) {
    unsigned slot = (self.out_first + self.out_count++) % OUT_SLOTS;
    self.out[slot].type = type;
    self.out[slot].body = *body;
    fill_window();
}

static void add_result(uint64_t number, bool transmitted, const char *reason) {
    struct writer w = new_array(3);
    put_head(&w, UINT, number);
    put_bool(&w, transmitted);
    put_text(&w, reason);
    append(RESULT, &w);
}

/* ---- Protocol: frames in -------------------------------------------------------------------- */

static void take_hello(struct reader *r, unsigned flags) {
    size_t length;
    uint64_t members = read_expected(r, ARRAY), numbers[6];
    for (int i = 0; i < 6; i++)
        numbers[i] = read_expected(r, UINT);
    uint64_t boot_id = numbers[2], window = numbers[3];
    read_string(r, TEXT, &length);
    read_string(r, TEXT, &length);
    for (uint64_t i = 8; i < members && !r->bad; i++)
        skip_item(r);
    if (r->bad || members < 8 || left(r) != 0 || boot_id > 0xffffffffu || window < 1) {
        platform_note("damaged hello");  /* an answer could go back and forth without end */
        return;
    }
    if (numbers[0] > VERSION || VERSION > numbers[1]) {
        platform_note("no version in common");
        return;
    }
    if (!self.peer_known || boot_id != self.peer_boot_id) {
        self.peer_known = true;
        self.peer_boot_id = (uint32_t)boot_id;
        self.taken = 0;
        self.first_sequence = 1;
        self.in_flight = 0;
    }
    self.open = true;
    if (flags & FLAG_WANTED)
        send_hello(false);
    self.peer_window = window < WINDOW ? (unsigned)window : WINDOW;
    self.tries = 1;
    self.status_due = true;
    send_status_when_due();
    if (!self.log_sent)
        send_log(1, "ready");
    self.log_sent = true;
    resend();
    fill_window();
}

/* Without a slot for its Result the packet is left untaken: the peer comes again with it. */
static bool take_send(uint64_t number, const uint8_t *packet, size_t length, bool urgent) {
    if (!has_free_slot())
        return false;
    if (length > LINK_PACKET_MAX || self.air_count == AIR_SLOTS) {
        add_result(number, false, length > LINK_PACKET_MAX ? "packet too long" : "queue full");
        return true;
    }
    unsigned place = urgent ? self.on_air : self.air_count;
    while (place < self.air_count && self.air[place].urgent)
        place++;
    struct waiting *p = &self.air[place];
    memmove(p + 1, p, (self.air_count++ - place) * sizeof *p);
    *p = (struct waiting){.number = number, .urgent = urgent, .length = (uint16_t)length};
    memcpy(p->packet, packet, length);
    return true;
}

static void take_numbered(struct reader *r, unsigned type, const uint8_t *head) {
    uint64_t number = 0;
    const uint8_t *packet = NULL;
    size_t length = 0;
    if (read_expected(r, ARRAY) != (type == SEND ? 2 : 3))
        r->bad = true;
    if (type == SEND) {
        number = read_expected(r, UINT);
        packet = read_string(r, BYTES, &length);
    } else {
        /* A node has no use for Result and Heard, but untaken they would block the peer. */
        for (int i = 0; i < 3; i++)
            skip_item(r);
    }
    bool readable = !r->bad && left(r) == 0;
    if (!readable)
        platform_note("damaged body");
    acknowledged(head[3]);
    if (head[2] == (uint8_t)(self.taken + 1)) {
        self.taken++;
        if (type == SEND && readable
            && !take_send(number, packet, length, (head[1] & FLAG_URGENT) != 0))
            self.taken--;
    }
    struct writer empty = new_array(0);
    send_frame(ACK, 0, 0, &empty);
    fill_window();
}

static void take_frame(const uint8_t *frame, size_t length) {
    if (length < HEAD + TRAILER)
        return;
    const uint8_t *end = frame + length - TRAILER;
    uint32_t crc = (uint32_t)end[0] << 24 | (uint32_t)end[1] << 16 | (uint32_t)end[2] << 8 | end[3];
    unsigned type = frame[0] & 15u;
    if (crc != crc32_of(frame, length - TRAILER) || (frame[0] >> 4 != VERSION && type != HELLO))
        return;
    struct reader body = {frame + HEAD, end, false}, whole = body;
    skip_item(&whole);
    if (whole.bad || left(&whole) != 0 || frame[HEAD] >> 5 != ARRAY)
        return;
    if (type == HELLO) {
        take_hello(&body, frame[1]);
    } else if (!self.open) {
        send_hello(true);
    } else if (type == SEND || type == RESULT || type == HEARD) {
        take_numbered(&body, type, frame);
    } else if (type > LOG) {
        send_log(2, "unknown frame type");
    } else {
        acknowledged(frame[3]);  /* what Status and Log say is nothing to a node */
        fill_window();
    }
}

/* ---- Protocol: what the board calls --------------------------------------------------------- */

void link_start(uint32_t boot_id, const char *name, uint32_t now_ms) {
    memset(&self, 0, sizeof self);
    self.now = now_ms;
    self.boot_id = boot_id;
    self.first_sequence = 1;
    strncpy(self.name, name, LINK_NAME_MAX);
    send_hello(true);
}

void link_receive(uint8_t byte) {
    if (byte != 0) {
        if (self.coded_length < CODED_MAX)
            self.coded[self.coded_length++] = byte;
        else
            self.too_long = true;
        return;
    }
    size_t length = self.too_long ? 0 : cobs_decode(self.coded, self.coded_length);
    self.coded_length = 0;
    self.too_long = false;
    take_frame(self.coded, length);
}

void link_air_done(bool transmitted, const char *reason) {
    if (self.air_count == 0)
        return;
    uint64_t number = self.air[0].number;
    self.on_air = false;
    self.air_count--;
    memmove(&self.air[0], &self.air[1], self.air_count * sizeof self.air[0]);
    add_result(number, transmitted, reason);
}

void link_heard(const uint8_t *packet, size_t length, int rssi, int snr) {
    if (!has_free_slot()) {
        platform_note("heard packet dropped");
        return;
    }
    struct writer w = new_array(3);
    put_string(&w, BYTES, packet, length);
    put_int(&w, rssi);
    put_int(&w, snr);
    if (!w.bad)
        append(HEARD, &w);
}

void link_status(int signal, int battery_mv, int battery_percent, bool charging) {
    const int status[4] = {signal, battery_mv, battery_percent, charging};
    self.status_due = self.status_due || memcmp(status, self.status, sizeof status) != 0;
    memcpy(self.status, status, sizeof status);
}

void link_tick(uint32_t now_ms) {
    self.now = now_ms;
    if (!self.open && now_ms - self.hello_at >= HELLO_MS)
        send_hello(true);
    if (self.open && self.in_flight > 0 && now_ms - self.sent_at >= RESEND_MS) {
        if (self.tries++ < TRIES) {
            resend();
        } else {
            self.open = false;
            send_hello(true);
        }
    }
    send_status_when_due();
    if (self.air_count > 0 && !self.on_air) {
        struct waiting *p = &self.air[0];
        if (!p->tried)  /* waiting behind others is not counted against it */
            p->since = now_ms;
        p->tried = true;
        self.on_air = platform_air_start(p->packet, p->length);
        if (!self.on_air && now_ms - p->since >= GIVE_UP_MS)
            link_air_done(false, "channel busy");
    }
}

/* ---- Linux: the board ----------------------------------------------------------------------- */

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { PEERS_MAX = 16, AIR_LEAD_MS = 50, AIR_BITS_PER_S = 9600 };

static int line_fd, air_fd, peer_count;
static struct sockaddr_in peers[PEERS_MAX];
static uint8_t air_packet[LINK_PACKET_MAX], backlog[8192];
static size_t air_length, backlog_length;
static bool transmitting;
static uint32_t air_ends;
static volatile sig_atomic_t must_end, must_restart;

static void on_signal(int number) {
    *(number == SIGUSR1 ? &must_restart : &must_end) = 1;
}

static uint32_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint32_t)((uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u);
}

/* A real line loses what nobody reads; here whole frames are lost, never half ones. */
void platform_write_line(const uint8_t *bytes, size_t length) {
    if (length > sizeof backlog - backlog_length)
        return;
    memcpy(backlog + backlog_length, bytes, length);
    backlog_length += length;
}

bool platform_air_start(const uint8_t *packet, size_t length) {
    memcpy(air_packet, packet, length);
    air_length = length;
    air_ends = now_ms() + AIR_LEAD_MS + (uint32_t)(length * 8 * 1000 / AIR_BITS_PER_S);
    transmitting = true;
    return true;
}

void platform_note(const char *text) { fprintf(stderr, "node: %s\n", text); }

/* The others hear a packet when it ends; at its beginning an answer could come too early. */
static void end_transmission(void) {
    transmitting = false;
    for (int i = 0; i < peer_count; i++)
        (void)sendto(air_fd, air_packet, air_length, 0, (struct sockaddr *)&peers[i],
                     sizeof peers[i]);
    link_air_done(true, "");
}

static void work(void) {
    uint8_t bytes[1024];
    link_tick(now_ms());
    ssize_t n = read(line_fd, bytes, sizeof bytes);
    for (ssize_t i = 0; i < n; i++)
        link_receive(bytes[i]);
    for (int i = 0; i < 32 && (n = recv(air_fd, bytes, sizeof bytes, 0)) >= 0; i++)
        if (!transmitting)
            link_heard(bytes, (size_t)n, -80, 6);
    if (transmitting && (int32_t)(now_ms() - air_ends) >= 0)
        end_transmission();
    link_tick(now_ms());
    n = write(line_fd, backlog, backlog_length);
    if (n > 0)
        memmove(backlog, backlog + n, backlog_length -= (size_t)n);
}

static void start(const char *name) {
    uint32_t boot_id;
    if (getrandom(&boot_id, sizeof boot_id, 0) != (ssize_t)sizeof boot_id)
        boot_id = now_ms() * 2654435761u ^ (uint32_t)getpid();
    transmitting = false;
    backlog_length = 0;
    link_start(boot_id, name, now_ms());
    link_status(4, 3700, 90, false);
}

static void need(bool right, const char *what) {
    if (right)
        return;
    perror(what);
    exit(1);
}

static struct sockaddr_in loopback(const char *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

int main(int argc, char **argv) {
    if (argc < 4 || argc - 4 > PEERS_MAX || strlen(argv[2]) > LINK_NAME_MAX) {
        fprintf(stderr, "usage: node LINK NAME OWN_PORT PEER_PORT...\n");
        return 2;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);

    struct sockaddr_in own = loopback(argv[3]);
    for (int i = 4; i < argc; i++)
        peers[peer_count++] = loopback(argv[i]);
    air_fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    need(air_fd >= 0 && bind(air_fd, (struct sockaddr *)&own, sizeof own) == 0, "air");

    char slave[128], old[2];
    struct termios raw;
    line_fd = posix_openpt(O_RDWR | O_NOCTTY);
    need(line_fd >= 0 && grantpt(line_fd) == 0 && unlockpt(line_fd) == 0, "pty");
    fcntl(line_fd, F_SETFL, O_NONBLOCK);
    snprintf(slave, sizeof slave, "%s", ptsname(line_fd));
    int slave_fd = open(slave, O_RDWR | O_NOCTTY);  /* kept: the gateway's leaving is no hang-up */
    need(slave_fd >= 0 && tcgetattr(slave_fd, &raw) == 0, "pty");
    cfmakeraw(&raw);
    tcsetattr(slave_fd, TCSANOW, &raw);
    if (readlink(argv[1], old, sizeof old) >= 0)
        unlink(argv[1]);
    need(symlink(slave, argv[1]) == 0, argv[1]);

    start(argv[2]);
    puts("ready");
    fflush(stdout);
    while (!must_end) {
        struct pollfd wait[2] = {{.fd = line_fd, .events = POLLIN},
                                 {.fd = air_fd, .events = POLLIN}};
        poll(wait, 2, transmitting ? 5 : 20);
        if (must_restart) {
            must_restart = 0;
            start(argv[2]);
        }
        work();
    }
    unlink(argv[1]);
    return 0;
}
