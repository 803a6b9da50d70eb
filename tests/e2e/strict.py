"""Shared by the tests of strict rules: rules, keys, and clients of all hosts."""
import collections
import http.client
import random
import threading


from clients import get, together

ALGORITHMS = {
    "token_bucket": "",
    "leaky_bucket": ", algorithm: leaky_bucket",
    "fixed_window": ", algorithm: fixed_window",
    "fixed_calendar": ", algorithm: fixed_window, window: 1d, timezone: Asia/Tokyo",
    "fixed_first": ", algorithm: fixed_window, align: first_request",
    "sliding_window_log": ", algorithm: sliding_window_log",
    "sliding_window_counter": ", algorithm: sliding_window_counter",
}


def strict(name="five", limit=5, more="", failure="local", window="1h"):
    window = "" if "window:" in more else f", window: {window}"
    return (f"  - {{ name: {name}, key: '${{header:x-key}}', limit: {limit}{window}, consistency: strict, "
            f"on_store_failure: {failure}{more} }}\n")


def rules(*lines):
    return "rules:\n" + "".join(lines or (strict(),))


def key(name):
    return {"headers": {"X-Key": name}}


def hammer(ports, keys, each, connections=12):
    """Sends `each` requests for every key, to random hosts; returns how often each key passed."""
    jobs = [name for name in keys for _ in range(each)]
    random.shuffle(jobs)
    passed, others, lock = collections.Counter(), collections.Counter(), threading.Lock()

    def client():
        mine = {port: http.client.HTTPConnection("127.0.0.1", port, timeout=20) for port in ports}
        while True:
            with lock:
                if not jobs:
                    break
                name = jobs.pop()
            port = random.choice(ports)
            status = get(port, "/", connection=mine[port], **key(name)).status
            with lock:
                if status == 200:
                    passed[name] += 1
                elif status != 429:
                    others[status] += 1
        for each_one in mine.values():
            each_one.close()
    together([client] * connections)
    assert not others, others
    return passed
