"""A limit from Python, through any Redis client: pip install redis; PORT=6380 python3 throttle.py"""
import os

import redis

weir = redis.Redis(port=int(os.environ.get("PORT", "6380")), decode_responses=True)
for number in range(1, 5):
    # At most 2 more at once than the pace of 30 an hour.
    limited, limit, remaining, retry_after, reset = weir.execute_command("CL.THROTTLE", "python:user42", 2, 30, 3600)
    print(f"{number}: {'denied, come back in %d s' % retry_after if limited else 'passes, %d left' % remaining}")

# The same by the rules of weir.yaml: the call has only the attributes of the request.
answer = weir.execute_command("WEIR.CHECK", "path", "/login", "method", "POST", "ip", "203.0.113.9")
print(dict(zip(answer[::2], answer[1::2])))
