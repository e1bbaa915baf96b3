/**
 * Sends generated requests to a service of its own: `npm run fuzz -- [--count 10000] [--seed N]`. Ends with 1 and the
 * request when one is answered with 500 or not as described.
 */
import { parseArgs } from "node:util";
import { knownValues, sendGenerated } from "./generated-requests.ts";
import buildTestApp from "./global-setup.ts";
import { Service } from "./service.ts";

const { values } = parseArgs({ options: { count: { type: "string", default: "10000" }, seed: { type: "string" } } });
const count = Number(values.count);
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
if (!Number.isSafeInteger(count) || !Number.isSafeInteger(seed)) {
  console.error("--count and --seed are whole numbers.");
  process.exit(1);
}

await buildTestApp();
const service = await Service.start();
try {
  console.log(`${count} requests with the seed ${seed}`);
  const known = await knownValues(service);
  const started = performance.now();
  const { statuses, succeeded } = await sendGenerated(service, { seed, count, known });
  console.log(`No 500 in ${Math.round((performance.now() - started) / 1000)} s. Answers by status:`, statuses);
  console.log(`Operations that succeeded at least once: ${[...succeeded].sort().join(", ")}`);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await service.stop();
}
