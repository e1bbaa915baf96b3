/** Sends generated requests to a new service. See HELP. */
import { commandLine, exitWithUsageError } from "../../infra/build/command-line.ts";

const HELP = `npm run fuzz -- [--count N] [--seed N]

Builds the app, starts a service and sends it requests that are generated from its OpenAPI document. If a response is 500 or does
not match the document, the command prints the request and exits with 1.

  --count N   number of requests (default 10000, some minutes)
  --seed N    seed of the requests; the same seed sends the same requests (default: random, printed)`;

const { values } = commandLine(HELP, {
  options: { count: { type: "string", default: "10000" }, seed: { type: "string" } },
});
const count = Number(values.count);
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
if (!Number.isSafeInteger(count) || !Number.isSafeInteger(seed))
  exitWithUsageError("--count and --seed are whole numbers");

const [{ readExistingIds, sendGenerated }, { default: buildTestApp }, { licence }, { Service }] = await Promise.all([
  import("./generated-requests.ts"),
  import("./global-setup.ts"),
  import("./licence.ts"),
  import("./service.ts"),
]);
const cleanUp = await buildTestApp();
const service = await Service.start({ env: { LICENSE_KEY: await licence() } });
try {
  console.log(`${count} requests with the seed ${seed}`);
  const existingIds = await readExistingIds(service);
  const startedMs = performance.now();
  const { statuses, succeeded } = await sendGenerated(service, { seed, count, existingIds });
  console.log(`No 500 in ${Math.round((performance.now() - startedMs) / 1000)} s. Answers by status:`, statuses);
  console.log(`Operations that succeeded at least once: ${[...succeeded].sort().join(", ")}`);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await service.stop();
  await cleanUp();
}
