import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { PlannedSubscription, SUBSCRIPTION } from "./planned-subscription.ts";

// Tests of the command `npm run preflight` as a process: exit codes, reports, and the files that it reads and writes.

const MAIN = path.resolve(import.meta.dirname, "../../infra/preflight/main.ts");
const folder = mkdtempSync(path.join(tmpdir(), "preflight-"));
let subscription: PlannedSubscription;
beforeAll(async () => {
  subscription = await PlannedSubscription.start();
});
afterAll(async () => {
  rmSync(folder, { recursive: true });
  await subscription.cloud.stop();
});
beforeEach(() => {
  subscription.plant(undefined);
  for (const file of readdirSync(folder)) rmSync(path.join(folder, file));
});

/** Runs the command in the test's folder, signed in to the simulated cloud. */
function run(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const { environment, app } = subscription.cloud;
  const env = {
    PATH: process.env.PATH,
    ...environment,
    AZURE_CLIENT_ID: app.clientId,
    AZURE_CLIENT_SECRET: app.clientSecret,
  };
  return new Promise((resolve) => {
    execFile(process.execPath, [MAIN, ...args], { cwd: folder, env }, (error, out, err) =>
      resolve({ code: error ? Number(error.code) : 0, out, err }),
    );
  });
}
const check = (...args: string[]) => run("--subscription", SUBSCRIPTION, "--location", "westeurope", ...args);
const written = (file: string) => readFileSync(path.join(folder, file), "utf8");

test("a clean subscription exits with 0 and names what was checked", async () => {
  const { code, out, err } = await check();
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out).toContain("Nothing found that stops the deployment.");
  for (const name of ["Permissions", "Policies", "Locks", "Region", "Names", "Vaults to watch"])
    expect(out).toMatch(new RegExp(`✓ ${name} `));
  expect(readdirSync(folder)).toEqual([]);
});

test("an obstacle exits with 1, with its fix as a command, and as JSON", async () => {
  subscription.plant({ unregistered: ["Microsoft.App"], withoutZones: ["westeurope"] });
  const { code, out } = await check("--network");
  expect(code).toBe(1);
  expect(out).toContain("Stops the deployment (2)");
  expect(out).toContain(`az provider register --namespace Microsoft.App --subscription ${SUBSCRIPTION} --wait`);
  const rerun = `npm run preflight -- --subscription ${SUBSCRIPTION} --location westeurope --network`;
  expect(out).toContain(`${rerun} --set 'storageReplication=LRS' --write bicep`);

  const json = await check("--network", "--json");
  expect(json.code).toBe(1);
  expect(JSON.parse(json.out)).toMatchObject({
    subscription: { id: SUBSCRIPTION, name: "Platform" },
    counts: { stops: 2, degrades: 0, notChecked: 0 },
    findings: [
      { check: "Region", code: "region.noZones" },
      { check: "Resource providers", subject: "Microsoft.App" },
    ],
    parameters: { networkEnabled: true, storageReplication: "LRS" },
  });
});

test("writes the parameters that avoid the findings, which the next run reads, and never replaces a file unasked", async () => {
  subscription.plant({ withoutZones: ["westeurope"] });
  const parameters = ["--name", "secrets", "--set", `tags={"owner":"\${me}"}`, "--set", "maximumInstanceCount=50"];
  expect((await check(...parameters, "--write", "bicep")).code).toBe(1);
  const bicep = JSON.parse(written("main.parameters.json"));
  expect(bicep).toEqual({
    $schema: "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",
    contentVersion: "1.0.0.0",
    parameters: {
      environmentName: { value: "secrets" },
      location: { value: "westeurope" },
      tags: { value: { owner: `\${me}` } },
      maximumInstanceCount: { value: 50 },
      storageReplication: { value: "LRS" },
    },
  });
  expect((await run("--subscription", SUBSCRIPTION, "--parameters", "main.parameters.json")).code).toBe(0);

  const refused = await check("--write", "bicep");
  expect(refused).toMatchObject({ code: 2, err: expect.stringContaining("main.parameters.json exists") });
  expect(JSON.parse(written("main.parameters.json"))).toEqual(bicep);
  await check("--write", "bicep", "--overwrite");
  expect(JSON.parse(written("main.parameters.json")).parameters.environmentName).toEqual({ value: "lifecycle" });

  await check(...parameters, "--write", "terraform", "--out", "own.tfvars");
  expect(written("own.tfvars")).toBe(
    'environment_name = "secrets"\nlocation = "westeurope"\ntags = {\n  "owner": "$${me}"\n}\nmaximum_instance_count = 50\nstorage_replication = "LRS"\n',
  );
  expect((await run("--subscription", SUBSCRIPTION, "--parameters", "own.tfvars")).code).toBe(0);
});

test("reads the parameters file of azd, with variables and their defaults", async () => {
  const file = path.resolve(import.meta.dirname, "../../infra/azure/main.parameters.json");
  const { code, out } = await check("--name", "from-azd", "--parameters", file, "--json");
  expect(code).toBe(0);
  expect(JSON.parse(out).parameters).toMatchObject({
    environmentName: "from-azd",
    mailEnabled: true,
    instanceMemoryMb: 512,
    functionSubnetResourceId: "",
  });
});

test.each([
  [[], "--subscription is missing"],
  [["--subscription", "x"], "--subscription must be a GUID"],
  [["--subscription", SUBSCRIPTION], "--location is missing"],
  [["--subscription", SUBSCRIPTION, "--location", "westeurope;id"], "--location must be a region"],
  [["--subscription", SUBSCRIPTION, "--location", "westeurope", "--name", "a_b"], "--name must have"],
  [["--subscription", SUBSCRIPTION, "--location", "westeurope", "--set", "colour=red"], "no such parameter"],
  [
    ["--subscription", SUBSCRIPTION, "--location", "westeurope", "--set", "mailEnabled=maybe"],
    "mailEnabled must be bool",
  ],
  [["--subscription", SUBSCRIPTION, "--parameters", "absent.json"], "no such file"],
  [["--subscription", SUBSCRIPTION, "--location", "westeurope", "--write", "pulumi"], "--write must be"],
])("%j is used incorrectly: exits with 2", async (args, message) => {
  expect(await run(...args)).toEqual({ code: 2, out: "", err: expect.stringContaining(message) });
});

test("a file that is neither JSON nor a list of values is reported", async () => {
  writeFileSync(path.join(folder, "broken.json"), "{");
  writeFileSync(path.join(folder, "broken.tfvars"), "location = var.region\n");
  for (const file of ["broken.json", "broken.tfvars"])
    expect(await check("--parameters", file)).toMatchObject({ code: 2, out: "" });
});

test("a subscription that the person can't see exits with 3 and the fix", async () => {
  const { code, out, err } = await run("--subscription", SUBSCRIPTION.replaceAll("1", "9"), "--location", "westeurope");
  expect({ code, out }).toEqual({ code: 3, out: "" });
  expect(err).toMatch(/Could not read the subscription/);
  expect(err).toContain("az login");
});
