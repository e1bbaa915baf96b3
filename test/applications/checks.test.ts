import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf, type CompanyApplication, keyIdOf, objectIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { liveIn } from "../azure/live-cloud.ts";
import { walk } from "../compliance/compliance-fixture.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, Deployment } from "./applications-fixture.ts";

const ada = { owners: ["ada@acme.example"] };
const secret = { name: "s", expiresInDays: 100 };
const applications: CompanyApplication[] = [
  { name: "Good", ...ada, secrets: [secret] },
  {
    name: "Two",
    ...ada,
    secrets: [
      { name: "older", expiresInDays: 90 },
      { name: "newer", expiresInDays: 91 },
      { name: "over", expiresInDays: -1 },
    ],
  },
  { name: "Long", ...ada, secrets: [{ name: "s", expiresInDays: 700 }] },
  { name: "Certified", ...ada, secrets: [secret], certificates: [{ name: "c", expiresInDays: 100 }] },
  {
    name: "Federated",
    ...ada,
    secrets: [secret],
    federated: [{ name: "f", issuer: "https://i.example", subject: "s" }],
  },
  { name: "Nobody's", secrets: [secret], certificates: [{ name: "c", expiresInDays: -2 }] },
  { name: "Signs tokens", ...ada, secrets: [secret], samlSigning: { expiresInDays: 300 } },
];

let azurite: TestStorage;
let cloud: Cloud;
let deployment: Deployment;
beforeAll(async () => {
  azurite = await openStorage(["checks"]);
  const live = await liveIn({ company: { subscriptions: [], applications } });
  cloud = live.cloud;
  deployment = new Deployment(azurite.connectionString("checks"), live);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
});

test("violations of an application's credentials are found, and resolved when they are fixed", async () => {
  const { applications: fixture, compliance, inventory } = deployment.start();
  await fixture.discover(caller);
  const { tenantId } = await fixture.get(appIdOf("Good"));
  const violationsOf = async () =>
    (await walk(compliance)).map((one) => {
      const application = applications.find(({ name }) => one.resourceId.includes(appIdOf(name)))!.name;
      expect([one.vaultName, one.subscriptionId]).toEqual([null, null]);
      expect(one.remediation.cli).toContain(appIdOf(application));
      return `${one.checkId} ${application}`;
    });
  expect((await violationsOf()).sort()).toEqual([
    "application-certificate-expired Nobody's",
    "application-certificate-owner Nobody's",
    "client-secret-alone Two",
    "client-secret-beside-certificate Certified",
    "client-secret-beside-federation Federated",
    "client-secret-expired Two",
    "client-secret-owner Nobody's",
    "client-secret-validity-period Long",
  ]);
  const alone = (await walk(compliance)).find(({ checkId }) => checkId === "client-secret-alone")!;
  expect(alone.resourceId).toBe(`entra.${tenantId}.${appIdOf("Two")}.${keyIdOf("Two", "older")}`);
  expect(alone.credentialTitle).toBe("Two/older");
  expect(alone.remediation.cli).toContain(keyIdOf("Two", "older"));

  const { directory } = cloud.control;
  for (const name of ["older", "over"]) directory.removeSecret(appIdOf("Two"), keyIdOf("Two", name));
  directory.removeApplication(appIdOf("Nobody's"));
  directory.removeSecret(appIdOf("Certified"), keyIdOf("Certified", "s"));
  directory.changeApplication(appIdOf("Federated"), { federated: [] });
  const federated = [{ id: objectIdOf("a federation"), name: "f", issuer: "https://i.example", subject: "s" }];
  directory.changeApplication(appIdOf("Long"), { federated });
  await fixture.discover(caller);
  expect((await violationsOf()).sort()).toEqual([
    "client-secret-beside-federation Long",
    "client-secret-validity-period Long",
  ]);
  expect((await fixture.get(appIdOf("Long"))).app.federated).toBe(true);
  const { score, passed, failed } = await compliance.score(0);
  expect([failed, passed > 20, score > 80]).toEqual([2, true, true]);
  expect((await inventory.vaults({}, { limit: 10, offset: 0, cursor: undefined })).total).toBe(0);

  // Without a license they are excluded from the score.
  deployment.licensed = false;
  expect(await walk(compliance)).toEqual([]);
  deployment.licensed = true;
});
