import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf, type CompanyApplication, keyIdOf, objectIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestCloud } from "../azure/live-cloud.ts";
import { readAllViolations } from "../compliance/compliance-fixture.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, Deployment } from "./applications-fixture.ts";

// Compliance checks of application credentials. Each application violates the checks that its name suggests. "Good" and "Signs
// tokens" violate none.

const ownedByAda = { owners: ["ada@acme.example"] };
const secret = { name: "s", expiresInDays: 100 };
const applications: CompanyApplication[] = [
  { name: "Good", ...ownedByAda, secrets: [secret] },
  {
    name: "Two",
    ...ownedByAda,
    secrets: [
      { name: "older", expiresInDays: 90 },
      { name: "newer", expiresInDays: 91 },
      { name: "over", expiresInDays: -1 },
    ],
  },
  { name: "Long", ...ownedByAda, secrets: [{ name: "s", expiresInDays: 700 }] },
  { name: "Certified", ...ownedByAda, secrets: [secret], certificates: [{ name: "c", expiresInDays: 100 }] },
  {
    name: "Federated",
    ...ownedByAda,
    secrets: [secret],
    federated: [{ name: "f", issuer: "https://i.example", subject: "s" }],
  },
  { name: "Nobody's", secrets: [secret], certificates: [{ name: "c", expiresInDays: -2 }] },
  { name: "Signs tokens", ...ownedByAda, secrets: [secret], samlSigning: { expiresInDays: 300 } },
];

let azurite: TestStorage;
let cloud: Cloud;
let deployment: Deployment;
beforeAll(async () => {
  azurite = await openStorage(["checks"]);
  const live = await startTestCloud({ company: { subscriptions: [], applications } });
  cloud = live.cloud;
  deployment = new Deployment(azurite.connectionString("checks"), live);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
});

test("violations of an application's credentials are found, and are resolved after the credentials are fixed", async () => {
  const { applications: service, compliance, inventory } = deployment.start();
  await service.discover(caller);
  const { tenantId } = await service.get(appIdOf("Good"));
  const violationsOf = async () =>
    (await readAllViolations(compliance)).map((violation) => {
      const application = applications.find(({ name }) => violation.resourceId.includes(appIdOf(name)))!.name;
      expect([violation.vaultName, violation.subscriptionId]).toEqual([null, null]);
      expect(violation.remediation.cli).toContain(appIdOf(application));
      return `${violation.checkId} ${application}`;
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
  const twoSecretsViolation = (await readAllViolations(compliance)).find(
    ({ checkId }) => checkId === "client-secret-alone",
  )!;
  expect(twoSecretsViolation.resourceId).toBe(`entra.${tenantId}.${appIdOf("Two")}.${keyIdOf("Two", "older")}`);
  expect(twoSecretsViolation.credentialTitle).toBe("Two/older");
  expect(twoSecretsViolation.remediation.cli).toContain(keyIdOf("Two", "older"));

  // Fixes all violations except Long's. Long gets a federated credential, which causes another one.
  const { directory } = cloud.control;
  for (const name of ["older", "over"]) directory.removeSecret(appIdOf("Two"), keyIdOf("Two", name));
  directory.removeApplication(appIdOf("Nobody's"));
  directory.removeSecret(appIdOf("Certified"), keyIdOf("Certified", "s"));
  directory.changeApplication(appIdOf("Federated"), { federated: [] });
  const federated = [{ id: objectIdOf("a federation"), name: "f", issuer: "https://i.example", subject: "s" }];
  directory.changeApplication(appIdOf("Long"), { federated });
  await service.discover(caller);
  expect((await violationsOf()).sort()).toEqual([
    "client-secret-beside-federation Long",
    "client-secret-validity-period Long",
  ]);
  expect((await service.get(appIdOf("Long"))).app.federated).toBe(true);
  const { score, passed, failed } = await compliance.score(0);
  expect([failed, passed > 20, score > 80]).toEqual([2, true, true]);
  expect((await inventory.vaults({}, { limit: 10, offset: 0, cursor: undefined })).total).toBe(0);

  // Without a license there are no violations of credentials.
  deployment.licensed = false;
  expect(await readAllViolations(compliance)).toEqual([]);
  deployment.licensed = true;
});
