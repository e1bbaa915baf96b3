/**
 * `npm run campaigns`: runs the long random tests with a new random seed, as a scheduled workflow does. A campaign is one
 * command with such tests; it reads the seed from the environment variable SEED.
 */
import { spawnSync } from "node:child_process";
import path from "node:path";
import { commandLine, exitWithUsageError } from "./command-line.ts";

interface Campaign {
  readonly description: string;
  /** Arguments of the `node` process that runs the campaign. */
  readonly arguments: (seed: number) => string[];
  readonly environment?: Record<string, string>;
}

const root = path.resolve(import.meta.dirname, "../..");
const VITEST = "node_modules/vitest/vitest.mjs";

const CAMPAIGNS: Record<string, Campaign> = {
  samples: {
    description: "tests of random histories, faults and crashes, with other cases than those of npm test",
    arguments: () => [
      VITEST,
      "run",
      "test/state",
      "test/outcomes",
      "test/audit/tampering.test.ts",
      "test/discovery/kill.test.ts",
      "test/rotation/kill.test.ts",
      "test/rotation/resource-key-crashes.test.ts",
      "test/rotation/automatic-schedules.test.ts",
      "test/secretless/run-crashes.test.ts",
      "test/sync/kill.test.ts",
    ],
  },
  schedules: {
    description: "200 random schedules of automatic rotations, with crashes and faults",
    // One line for each schedule, because they take almost an hour.
    arguments: () => [VITEST, "run", "test/rotation/automatic-schedules.test.ts", "--reporter=verbose"],
    environment: { CAMPAIGN: "all" },
  },
  keys: {
    description:
      "rotations of keys of every kind of resource: a crash at each call, lost responses and duplicate deliveries",
    arguments: () => [VITEST, "run", "test/rotation/resource-key-crashes.test.ts", "--reporter=verbose"],
    environment: { CAMPAIGN: "all" },
  },
  logins: {
    description:
      "rotations of logins of a real PostgreSQL server: a crash at each call, and a client that reconnects all the time",
    arguments: () => [VITEST, "run", "test/rotation/database-logins.test.ts", "--reporter=verbose"],
    environment: { CAMPAIGN: "all" },
  },
  secretless: {
    description:
      "replacements of client secrets by federated credentials: a crash before and after each call of each step",
    arguments: () => [VITEST, "run", "test/secretless/run-crashes.test.ts", "--reporter=verbose"],
    environment: { CAMPAIGN: "all" },
  },
  renewals: {
    description: "400 days of 200 certificates that are renewed on time, late and by each renewer",
    arguments: () => [VITEST, "run", "test/alerts/renewals.test.ts"],
    environment: { CAMPAIGN: "all" },
  },
  requests: {
    description: "5,000 requests generated from the OpenAPI document, as npm run fuzz",
    arguments: (seed) => ["test/support/fuzz-main.ts", "--count", "5000", "--seed", String(seed)],
  },
  page: {
    description: "every view and dialog of the page in both themes and all widths",
    arguments: () => [VITEST, "run", "test/page/page.test.ts", "-t", "renders in light and dark theme"],
    environment: { CAMPAIGN: "all" },
  },
  tasks: {
    // With CAMPAIGN=all, the visitors press keys where they click in `npm test`.
    description: "tasks of people on the page, with the keyboard alone",
    arguments: () => [VITEST, "run", "test/page/tasks.test.ts"],
    environment: { CAMPAIGN: "all" },
  },
};

const LIST = Object.entries(CAMPAIGNS).map(([name, { description }]) => `  ${name.padEnd(10)}  ${description}`);
const HELP = `npm run campaigns -- [--seed N] [NAME…]

Runs the long random tests with a new seed, which it prints. Exits with 1 if a campaign fails.

${LIST.join("\n")}

  NAME       runs only the named campaigns
  --seed N   repeats the run with this seed (default: a random seed)

CAMPAIGN=all npx vitest run PATH runs every case of one test file, which can take hours.`;

const { values, positionals } = commandLine(HELP, { allowPositionals: true, options: { seed: { type: "string" } } });
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
if (!Number.isSafeInteger(seed) || seed < 1) exitWithUsageError("--seed must be a whole number of at least 1");
for (const name of positionals) if (!Object.hasOwn(CAMPAIGNS, name)) exitWithUsageError(`There is no campaign ${name}`);

const failed: string[] = [];
for (const name of positionals.length > 0 ? positionals : Object.keys(CAMPAIGNS)) {
  const campaign = CAMPAIGNS[name]!;
  console.log(`\nCampaign ${name}: ${campaign.description}. To repeat: npm run campaigns -- --seed ${seed} ${name}`);
  const startMs = performance.now();
  const { status } = spawnSync(process.execPath, campaign.arguments(seed), {
    cwd: root,
    env: { ...process.env, SEED: String(seed), ...campaign.environment },
    stdio: "inherit",
  });
  console.log(`Campaign ${name} ended with ${status} after ${Math.round((performance.now() - startMs) / 1000)} s`);
  if (status !== 0) failed.push(name);
}
if (failed.length > 0) {
  console.error(`Failed with --seed ${seed}: ${failed.join(", ")}`);
  process.exitCode = 1;
}
