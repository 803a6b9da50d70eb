// A limit from Node, through any Redis client: npm install ioredis; PORT=6380 node throttle.js
const Redis = require("ioredis");
const weir = new Redis({ port: Number(process.env.PORT || 6380), lazyConnect: true });

(async () => {
  for (let number = 1; number <= 4; number++) {
    // At most 2 more at once than the pace of 30 an hour.
    const [limited, limit, remaining, retryAfter] = await weir.call("CL.THROTTLE", "node:user42", 2, 30, 3600);
    console.log(`${number}: ${limited ? `denied, come back in ${retryAfter} s` : `passes, ${remaining} left`}`);
  }
  weir.disconnect();
})();
