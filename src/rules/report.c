/* Reports errors and warnings about a rule file, with their place. */
#include "rules/report.h"
#include "base/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#define LINE_SHOWN 200 /* bytes of a line that are shown */

size_t weir__line_break(const char *at, size_t left)
{
    switch ((unsigned char)*at) {
    case '\n':
        return 1;
    case '\r':
        return left > 1 && at[1] == '\n' ? 2 : 1;
    case 0xc2: /* NEL */
        return left > 1 && (unsigned char)at[1] == 0x85 ? 2 : 0;
    case 0xe2: /* LS, PS */
        return left > 2 && (unsigned char)at[1] == 0x80 && ((unsigned char)at[2] | 1) == 0xa9 ? 3 : 0;
    default:
        return 0;
    }
}

/* ---- Places ---- */

static const struct weir__source *source_of(const struct weir__diagnostics *report, struct weir__place place)
{
    return place.source < report->source_count ? &report->sources[place.source] : NULL;
}

static const char *name_of(const struct weir__diagnostics *report, struct weir__place place)
{
    const struct weir__source *source = source_of(report, place);
    return source && source->name ? source->name : "rules";
}

bool weir__place_find(struct weir__diagnostics *report, struct weir__place place, weir_text *rest)
{
    const struct weir__source *source = source_of(report, place);
    if (!source || place.line == 0)
        return false;

    weir_text text = source->text;
    uint32_t line = 1;
    size_t i = 0;
    if (report->found.line && report->found.source == place.source && report->found.line <= place.line) {
        line = report->found.line;
        i = report->found.offset;
    }
    while (line < place.line && i < text.len) {
        size_t length = weir__line_break(text.data + i, text.len - i);
        line += length > 0;
        i += length ? length : 1;
    }
    if (line < place.line)
        return false;
    report->found.source = place.source;
    report->found.line = line;
    report->found.offset = i;
    *rest = (weir_text){text.data ? text.data + i : "", text.len - i};
    return true;
}

bool weir__place_byte(struct weir__diagnostics *report, struct weir__place place, weir_text *rest)
{
    if (!weir__place_find(report, place, rest))
        return false;
    size_t i = place.line == 1 && weir__has_byte_order_mark(*rest) ? 3 : 0;
    for (uint32_t column = 1; column < place.column && i < rest->len; column++)
        for (i++; i < rest->len && ((unsigned char)rest->data[i] & 0xc0) == 0x80;)
            i++;
    *rest = (weir_text){rest->data + i, rest->len - i};
    return true;
}

/*
 * The line of a place with one printable character for each of its own, so that a caret under column N points at the
 * Nth. NULL if there is none, or if it is too long for its column to be seen.
 */
static const char *line_shown(struct weir__diagnostics *report, struct weir__place place, char shown[LINE_SHOWN + 1])
{
    weir_text rest;
    size_t used = 0, i = 0;
    uint32_t columns = 0;

    if (!weir__place_find(report, place, &rest))
        return NULL;
    if (place.line == 1 && weir__has_byte_order_mark(rest))
        i = 3;
    while (i < rest.len && !weir__line_break(rest.data + i, rest.len - i)) {
        uint32_t number = 0;
        size_t length = weir__utf8_decode(rest.data + i, rest.len - i, &number);
        bool as_is = length && weir__is_printable(number);
        if (used + (as_is ? length : 1) > LINE_SHOWN) {
            if (place.column > columns)
                return NULL;
            break;
        }
        if (as_is)
            memcpy(shown + used, rest.data + i, length);
        else
            shown[used] = *(rest.data + i) == '\t' ? ' ' : '?';
        used += as_is ? length : 1;
        i += length ? length : 1;
        columns++;
    }
    shown[used] = 0;
    return shown;
}

struct weir__place weir__place_at(const struct weir__diagnostics *report, uint32_t source, size_t offset)
{
    struct weir__place place = {source, 1, 1};
    const struct weir__source *of = source_of(report, place);
    if (!of)
        return (struct weir__place){source, 0, 0};

    weir_text text = of->text;
    size_t i = weir__has_byte_order_mark(text) ? 3 : 0;
    while (i < offset && i < text.len) {
        size_t length = weir__line_break(text.data + i, text.len - i);
        if (length) {
            place.line++;
            place.column = 1;
        } else {
            uint32_t number;
            length = weir__utf8_decode(text.data + i, text.len - i, &number);
            if (length && i + length > offset)
                break; /* it is inside this one */
            place.column++;
        }
        i += length ? length : 1;
    }
    return place;
}

const char *weir__place_text(const struct weir__diagnostics *report, struct weir__place place, char *buffer,
                             size_t size)
{
    if (place.line)
        snprintf(buffer, size, "%s:%u", name_of(report, place), place.line);
    else
        snprintf(buffer, size, "%s", name_of(report, place));
    return buffer;
}

/* ---- Reports ---- */

static void emit(struct weir__diagnostics *report, enum weir_severity severity, struct weir__place place,
                 const char *suggestion, const char *message)
{
    char shown[LINE_SHOWN + 1];
    weir_diagnostic diagnostic = {.severity = severity,
                                  .file = name_of(report, place),
                                  .line = (int)place.line,
                                  .column = (int)place.column,
                                  .message = message,
                                  .suggestion = suggestion,
                                  .source = report->secret ? NULL : line_shown(report, place, shown)};
    report->diagnose(report->context, &diagnostic);
}

bool weir__report(struct weir__diagnostics *report, enum weir_severity severity, struct weir__place place,
                  const char *suggestion, const char *format, ...)
{
    char raw[WEIR__MESSAGE_MAX], message[WEIR__MESSAGE_MAX];
    int *count = severity == WEIR_IS_ERROR ? &report->errors : &report->warnings;

    if (*count < INT_MAX)
        ++*count;
    if (!report->diagnose || *count > WEIR__ERRORS_MAX + 1)
        return false;
    if (*count > WEIR__ERRORS_MAX) {
        place.line = place.column = 0;
        emit(report, severity, place, NULL,
             severity == WEIR_IS_ERROR ? "too many errors; the rest is not shown"
                                       : "too many warnings; the rest is not shown");
        return false;
    }
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    if (wanted < 0)
        raw[0] = 0;
    /* A message that was cut may end within a character: with less room weir__printable ends it in dots. */
    size_t room = wanted >= (int)sizeof raw ? sizeof message - 4 : sizeof message;
    weir__printable((weir_text){raw, strlen(raw)}, message, room);
    emit(report, severity, place, suggestion, message);
    return false;
}

const char *weir__report_nearest(const struct weir__diagnostics *report, weir_text word, const char *const *choices,
                                 size_t count)
{
    /* Suggestions cost time: only for errors that are shown. A file may have a million unknown words. */
    return report->diagnose && report->errors < WEIR__ERRORS_MAX ? weir__suggest(word, choices, count) : NULL;
}

const char *weir__report_meant(weir_text word, const char *const (*table)[2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (weir__text_listed(weir__text_of(table[i][1]), word))
            return table[i][0];
    return NULL;
}
