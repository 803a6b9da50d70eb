#!/usr/bin/env python3
"""Turns the "examples" of worked_examples.json into a C table for the tests."""
import json
import sys

ALGORITHM = {
    "token_bucket": "WEIR_TOKEN_BUCKET",
    "leaky_bucket": "WEIR_LEAKY_BUCKET",
    "fixed_window": "WEIR_FIXED_WINDOW",
    "sliding_window_log": "WEIR_SLIDING_WINDOW_LOG",
    "sliding_window_counter": "WEIR_SLIDING_WINDOW_COUNTER",
}
CHOICE = {
    "refill": {"continuous": "WEIR_REFILL_CONTINUOUS", "interval": "WEIR_REFILL_INTERVAL"},
    "align": {"clock": "WEIR_ALIGN_CLOCK", "first_request": "WEIR_ALIGN_FIRST_REQUEST"},
    "round": {"down": "WEIR_ROUND_DOWN", "up": "WEIR_ROUND_UP"},
}
KNOWN = {"name", "algorithm", "limit", "window_s", "burst", "refill", "align", "count_rejected", "buckets", "round",
         "soft_percent", "steps"}
STEP = {"t", "n", "allow", "remaining", "cost"}


def nanoseconds(seconds):
    return round(seconds * 10**9)


def main():
    examples = json.load(open(sys.argv[1], encoding="utf-8"))["examples"]
    print("/* Made by tools/vectors.py from worked_examples.json. */")
    print("static const struct vector vectors[] = {")
    for example in examples:
        unknown = set(example) - KNOWN
        for step in example["steps"]:
            unknown |= set(step) - STEP
        if unknown:
            sys.exit(f"{example['name']}: unknown field {sorted(unknown)}; teach tools/vectors.py about it")
        fields = [f".algorithm = {ALGORITHM[example['algorithm']]}", f".limit = {example['limit']}",
                  f".window_ns = {nanoseconds(example['window_s'])}"]
        for name in ("burst", "buckets", "soft_percent"):
            if name in example:
                fields.append(f".{name} = {example[name]}")
        if example.get("count_rejected"):
            fields.append(".count_rejected = true")
        fields += [f".{name} = {CHOICE[name][example[name]]}" for name in CHOICE if name in example]
        print(f'    {{"{example["name"]}", {{{", ".join(fields)}}}, {len(example["steps"])}, {{')
        for s in example["steps"]:
            remaining = s.get("remaining", "NOT_GIVEN")
            print(f'        {{{nanoseconds(s["t"])}, {s["n"]}, {s.get("cost", 1)}, {s["allow"]}, {remaining}}},')
        print("    }},")
    print("};")


main()
