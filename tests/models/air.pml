/*
 * An item on the air between kits, in earshot of each other: beacons of what each has, repairs of
 * what somebody lacks, confirmations, restarts, journals that are lost, and two kits under one
 * number. The twin of Ada has a copy of her card, and posts another item under the same number.
 *
 * Code: agent/outbound/packing.py (pack, _pack_repeats), agent/outbound/piggyback.py (fill),
 * summaries.py, packet.py, reception.py and rounds.py in extensions/radio/mesh/.
 * What is traced has the name of the function there, and behind it who transmits.
 *
 * Claims: an item is called Delivered only where a disk under the number that confirmed it has had
 * that very item; every run ends with it Delivered, if its sender still knows of it, and at each kit
 * to which one in earshot can give it.
 * Assumed: who has something to say says it in the end; radio-hops is not reached; all of it takes
 * less than an hour. Of two items under one number a kit that has either asks for no other.
 */

#ifndef FAULTS
#define FAULTS 3
#endif
#define ADA 0
#define BEN 1
#define CLEO 2
#define TWIN 3
#define A 1		/* Ada's item */
#define B 2		/* her twin's, under the same number */

mtype = { none, waits, delivered, gone }
mtype = { ada, ben, cleo, twin }
mtype = { pack, fill, _pack_repeats, restart, lose_journal, ended }

byte twin_of;	/* whose number it has; 0: there is none */
bool deaf;	/* the two that share a number do not hear each other */

/* On the disk of each. */
byte has[4], newest[4];
mtype leg[4] = none;
byte confirmed;	/* of Ada's item: a bit for each number */

/* In the program's memory: which it says to have; it has one, and does not say so. */
byte here[4];
bool unsaid[4];
bool lack[4], owes[4], noticed[4];
byte want[4], also[4];	/* to be repeated, one after the other */

/* What disks under each number have had, whatever has been lost. */
byte had[4];

byte faults = FAULTS, passes = 1;

/* One step of the air's own. */
byte x, y, heard, item, says;
bool asks, useful;

#define there(k) ((k) < TWIN || twin_of)
#define number(k) ((k) < TWIN -> (k) + 1 : twin_of)
#define own(k) ((k) == ADA -> A : ((k) == TWIN && twin_of == 1 -> B : 0))
#define twins (number(x) == number(y))
#define audible (x != y && there(x) && there(y) && !(deaf && twins))
#define name(k) ((k) == ADA -> ada : ((k) == BEN -> ben : ((k) == CLEO -> cleo : twin)))
#define gives(by) (own(by) -> leg[by] == delivered : has[by] && !unsaid[by])
#define can_give(k, by) (k != by && there(by) && gives(by) && !(deaf && number(k) == number(by)))
#define served(k) (!there(k) || own(k) || has[k] || \
	!(can_give(k, ADA) || can_give(k, BEN) || can_give(k, CLEO) || can_give(k, TWIN)))
#define over (leg[ADA] != waits && leg[TWIN] != waits && \
	served(BEN) && served(CLEO) && served(TWIN))

#define trace(what, value, how) \
	printf("T %e %d %e twin=%d leg=%e,%e confirmed=%d has=%d,%d,%d,%d here=%d,%d,%d,%d lack=%d,%d,%d,%d noticed=%d,%d,%d,%d\n", \
		what, value, how, twin_of, leg[ADA], leg[TWIN], confirmed, \
		has[0], has[1], has[2], has[3], here[0], here[1], here[2], here[3], \
		lack[0], lack[1], lack[2], lack[3], noticed[0], noticed[1], noticed[2], noticed[3]); \
	assert(leg[ADA] != delivered || confirmed); \
	assert(!(confirmed & 4) || had[2] & A); \
	assert(!(confirmed & 8) || had[3] & A)

#define HEARD :: heard = heard | (1 << y)
#ifdef WALK
/* A random walk is not to spend its faults at once. */
#define MOSTLY_NOT :: true :: true :: true :: true :: true
#define MOSTLY_HEARD HEARD HEARD HEARD
#else
#define MOSTLY_HEARD HEARD
#define MOSTLY_NOT :: true
#endif

/* Who of those in earshot hears what x transmits. */
inline transmit() {
	heard = 0; y = 0;
	do
	:: y <= TWIN && audible ->
		if MOSTLY_HEARD :: faults -> faults-- fi;
		y++
	:: y <= TWIN && !audible -> y++
	:: y > TWIN -> break
	od
}

/* The item is on the disk of y; whose number another has confirms nothing. */
inline store() {
	if
	:: has[y] & item -> want[y] = 0; also[y] = 0
	:: else -> has[y] = has[y] | item; newest[y] = item; had[number(y)] = had[number(y)] | item
	fi;
	if
	:: own(y)
	:: !own(y) && noticed[y] && !here[y] -> unsaid[y] = true; lack[y] = false
	:: !own(y) && !noticed[y] -> here[y] = item; unsaid[y] = false; lack[y] = false
	:: else
	fi
}

inline confirm() {
	leg[y] = delivered; here[y] = own(y);
	if :: y == ADA -> confirmed = confirmed | (1 << number(x)) :: else fi
}

/* y hears an item from its sender. */
inline hear_sender() {
	if
	:: twins -> noticed[y] = true; store()
	:: else -> store(); if :: !noticed[y] -> owes[y] = true :: else fi
	fi
}

/* y hears one that is repeated: who repeats it has it. */
inline hear_repeat() {
	if
	:: own(y) && twins -> noticed[y] = true; store()
	:: own(y) && !twins && item == own(y) && leg[y] != gone -> confirm()
#ifndef FAULT_A_TWIN_IS_AN_ECHO
	:: !own(y) && twins && !(has[y] & item) -> noticed[y] = true; store()
#endif
	:: !own(y) && !twins -> store()
	:: else
	fi
}

/* y hears what x has. */
inline hear_holding() {
	if :: twins -> noticed[y] = true :: else fi;
	if
	:: own(y) && !twins && leg[y] != gone &&
#ifdef FAULT_A_NUMBER_CONFIRMS
		says
#else
		says == own(y)
#endif
		-> confirm()
#ifdef FAULT_WHO_ASKS_CONFIRMS
	:: own(y) && !twins && leg[y] != gone && asks -> confirm()
#endif
	:: !own(y) && says && !here[y] && !unsaid[y] -> lack[y] = true
	:: else
	fi;
	if
	:: asks && here[y] && !(own(y) && twins) ->
		if
		:: !want[y] -> want[y] = here[y]
		:: want[y] && want[y] != here[y] -> also[y] = here[y]
		:: else
		fi
	:: else
	fi
}

/* Whether what x has to say is news to somebody. */
inline look() {
	useful = owes[x]; says = here[x]; asks = lack[x] && !here[x]; y = 0;
	do
	:: y <= TWIN && audible ->
		useful = useful || (own(y) && !twins && says == own(y) && leg[y] == waits) ||
			(!own(y) && says && !here[y] && !unsaid[y] && !lack[y]) ||
			(asks && here[y] && !want[y] && !(own(y) && twins));
		y++
	:: y <= TWIN && !audible -> y++
	:: y > TWIN -> break
	od
}

/* Whether the item of x is news to somebody, and nobody is about to answer it. */
inline look_at_item() {
	useful = false; y = 0;
	do
	:: y <= TWIN && audible && owes[y] -> useful = false; break
	:: y <= TWIN && audible && !owes[y] ->
		useful = useful || (!twins && (!(has[y] & own(x)) ||
			(here[y] != own(x) && !noticed[y])));
		y++
	:: y <= TWIN && !audible -> y++
	:: y > TWIN -> break
	od
}

/* Everybody who hears it takes it in. */
inline arrive(what) {
	y = 0;
	do
	:: y <= TWIN && (heard & (1 << y)) ->
		if
		:: what == pack -> hear_sender()
		:: what == _pack_repeats -> hear_repeat()
		:: what == fill -> hear_holding()
		fi;
		y++
	:: y <= TWIN && !(heard & (1 << y)) -> y++
	:: y > TWIN -> break
	od
}

/* One that begins anew: what was in its memory is not there any more. */
inline begin_anew() {
	want[x] = 0; also[x] = 0; owes[x] = false; lack[x] = false; noticed[x] = false;
	unsaid[x] = false;
#ifdef FAULT_A_RESTART_FORGETS
	here[x] = 0
#else
	here[x] = (own(x) -> (leg[x] == delivered -> own(x) : 0) : newest[x])
#endif
}

inline happen() {
	if
	:: trace(restart, 0, name(x)); begin_anew()
	:: has[x] || leg[x] == waits || leg[x] == delivered -> trace(lose_journal, 0, name(x));
		has[x] = 0; newest[x] = 0;
		if :: own(x) -> leg[x] = gone :: else fi;
		if :: x == ADA -> confirmed = 0 :: else fi;
		begin_anew()
	fi
}

/* What x transmits where it has its turn: an item that waits, a repair, or what it has. */
inline speak() {
	if
	:: leg[x] == waits -> transmit(); trace(pack, heard, name(x)); item = own(x);
		arrive(pack)
	:: leg[x] != waits && want[x] -> transmit(); trace(_pack_repeats, heard, name(x));
		item = want[x]; arrive(_pack_repeats);
		item = also[x];
		if :: item -> arrive(_pack_repeats) :: else fi;
		want[x] = 0; also[x] = 0
	:: leg[x] != waits && !want[x] -> transmit(); trace(fill, heard, name(x));
		says = here[x]; asks = lack[x] && !here[x]; owes[x] = false;
		arrive(fill)
	fi
}

inline may_speak() {
	if
	:: leg[x] == waits -> look_at_item()
	:: leg[x] != waits && want[x] -> useful = true
	:: leg[x] != waits && !want[x] -> look()
	fi
}

inline forget() {
	x = 0; y = 0; heard = 0; item = 0; says = 0; asks = false; useful = false
}

#define can_speak (there(x) && (leg[x] == waits || want[x] || here[x] || lack[x]))

active proctype life() {
	byte turn;
	atomic {
		if :: twin_of = 0 :: twin_of = 1 :: twin_of = 2 fi;
		if :: twin_of -> deaf = true :: deaf = false fi;
		leg[ADA] = waits;
		if :: twin_of == 1 -> leg[TWIN] = waits :: else fi
	}
	do
	:: atomic { !over ->
		/* Whose turn it is; one after the other, unless it lets the others go first. */
		x = turn;
		if
		:: faults && there(x) -> faults--; happen()
		MOSTLY_NOT
		fi;
		if :: can_speak -> may_speak() :: else -> useful = false fi;
		if
		:: useful -> speak()
		:: useful && passes -> passes--
		:: !useful && can_speak && passes -> passes--; speak()
		:: !useful
		fi;
		turn = (turn + 1) % 4;
		forget() }
	:: over -> break
	od;
	trace(ended, 0, none)
}
