/* A GPIO chip for a program that is started with this library before libc (ld.so(8), LD_PRELOAD):
 * ioctl on any file answers as Linux does for a character device of GPIO. Written from linux/gpio.h,
 * whose own structs and numbers it uses. What is done to the line is written to the file GPIO_LOG. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/gpio.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void say(const char *what, unsigned long number)
{
    FILE *log = fopen(getenv("GPIO_LOG"), "a");
    if (log) {
        fprintf(log, "%s %lu\n", what, number);
        fclose(log);
    }
}

static unsigned long level = 1;

int ioctl(int file, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *what = va_arg(rest, void *);
    va_end(rest);
    if (request == GPIO_GET_CHIPINFO_IOCTL) {
        struct gpiochip_info *info = what;
        memset(info, 0, sizeof *info);
        strncpy(info->name, "gpiochip0", sizeof info->name - 1);
        strncpy(info->label, getenv("GPIO_LABEL"), sizeof info->label - 1);
        info->lines = 58;
        return 0;
    }
    if (request == GPIO_V2_GET_LINE_IOCTL) {
        struct gpio_v2_line_request *line = what;
        if (line->config.flags == GPIO_V2_LINE_FLAG_INPUT && line->num_lines == 1) {
            line->fd = memfd_create("input", 0);
            return 0;
        }
        if (line->num_lines != 1 || line->config.flags != GPIO_V2_LINE_FLAG_OUTPUT ||
            line->config.num_attrs || strcmp(line->consumer, "fieldagent"))
            return -1;
        level = 0;
        say("low", line->offsets[0]); /* an output is inactive until it is told otherwise */
        line->fd = memfd_create("line", 0);
        return 0;
    }
    if (request == GPIO_V2_LINE_SET_VALUES_IOCTL) {
        struct gpio_v2_line_values *values = what;
        level = values->bits & values->mask;
        say(values->bits & values->mask ? "high" : "low", (unsigned long)values->mask);
        return 0;
    }
    if (request == GPIO_V2_LINE_GET_VALUES_IOCTL) {
        struct gpio_v2_line_values *values = what;
        /* what follows the output, unless it is stuck */
        values->bits = getenv("GPIO_STUCK") ? 1 : level;
        return 0;
    }
    int (*real)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    return real(file, request, what);
}
