// Violations from dependency discovery: references that don't resolve, and secrets without any read.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { AssetUse, Reference } from "../../shared/compliance/references.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, type Fixture, openFixture, vault } from "./compliance-fixture.ts";

let storage: TestStorage;
let fixture: Fixture;
let discoveryCalls = 0;
/** The references that the simulated dependency discovery returns for every vault. */
let discovered: (Reference | AssetUse)[] = [];

beforeAll(async () => {
  storage = await openStorage();
  fixture = openFixture(storage.connectionString(), undefined, async () => {
    discoveryCalls++;
    return discovered;
  });
});
afterAll(() => storage?.stop());

const page = { limit: 100, offset: 0, cursor: undefined };
/** Returns the violations of references, one line each. */
const referenceViolations = async () =>
  (await fixture.compliance.violations({}, page)).items
    .filter(({ checkId }) => checkId.endsWith("-reference-resolved"))
    .map(({ checkId, resourceId, evidence }) => `${checkId} ${resourceId}: ${evidence}`);
/** Returns a reference to an asset, or to the whole vault if there is no name. */
const reference = (name: string | undefined, resolved: boolean, resourceName = "app"): Reference => ({
  asset: name,
  resolved,
  evidence: `${resourceName} (webApp), A: ${resolved ? "Resolved" : "SecretNotFound"}`,
});
const changeReferences = async (references: typeof discovered, assets: string[]) => {
  discovered = references;
  await fixture.compliance.referencesChanged("KV-One", assets);
  return await fixture.drain();
};

test("a reference that can't be resolved is a violation of its target until it is resolved", async () => {
  const secret = asset("kv-one", "secret", "db");
  const certificate = asset("kv-one", "certificate", "web");
  await fixture.scan(vault("kv-one"), [secret, certificate]);
  expect(await referenceViolations()).toEqual([]);
  const scoreWithoutReferences = await fixture.compliance.score();

  // A reference to a certificate's secret counts for the certificate. One to a secret that does not exist counts for the vault.
  const references = [
    reference("secret.db", false),
    reference("secret.db", true, "other"),
    reference("secret.web", false),
    reference("secret.gone", false),
    reference(undefined, true),
  ];
  await changeReferences(references, ["secret.db", "secret.web", "secret.gone"]);
  expect(await referenceViolations()).toEqual([
    "certificate-reference-resolved kv-one.certificate.web: 1 reference does not resolve: app (webApp), A: SecretNotFound.",
    "secret-reference-resolved kv-one.secret.db: 1 reference does not resolve: app (webApp), A: SecretNotFound.",
    "vault-reference-resolved kv-one: 1 reference does not resolve: app (webApp), A: SecretNotFound.",
  ]);
  expect((await fixture.compliance.score()).total).toBe(scoreWithoutReferences.total + 3);

  // A scan uses the stored references. It finds the missing secret without querying dependency discovery.
  discoveryCalls = 0;
  await fixture.scan(vault("kv-one"), [secret, certificate, asset("kv-one", "secret", "gone")]);
  expect(discoveryCalls).toBe(0);
  expect((await referenceViolations()).map((text) => text.split(":")[0])).toEqual([
    "certificate-reference-resolved kv-one.certificate.web",
    "secret-reference-resolved kv-one.secret.db",
    "secret-reference-resolved kv-one.secret.gone",
  ]);

  await changeReferences(
    [reference("secret.db", true), reference("secret.gone", true)],
    ["secret.db", "secret.gone", "secret.web"],
  );
  expect(await referenceViolations()).toEqual([]);
  // Without references, the check no longer applies to these two secrets.
  const { total } = await fixture.compliance.score();
  await changeReferences([], ["secret.db", "secret.gone"]);
  expect((await fixture.compliance.score()).total).toBe(total - 2);
});

test("changed references of the vault itself, or of many assets, are all evaluated", async () => {
  await fixture.scan(vault("kv-one"), [asset("kv-one", "secret", "s300")]);
  await changeReferences([reference(undefined, false)], []);
  expect(await referenceViolations()).toEqual([
    "vault-reference-resolved kv-one: 1 reference does not resolve: app (webApp), A: SecretNotFound.",
  ]);
  const assets = Array.from({ length: 301 }, (_, index) => `secret.s${index}`);
  const messages = await changeReferences([reference("secret.s300", false)], assets);
  expect(messages.flatMap((message) => ("assets" in message ? message.assets : [])).sort()).toEqual(assets.sort());
  expect((await referenceViolations()).map((text) => text.split(":")[0])).toEqual([
    "secret-reference-resolved kv-one.secret.s300",
  ]);
  expect(await changeReferences([], assets.slice(0, 300))).toHaveLength(1);
  await changeReferences([], assets);
});

test("a vault's first evaluation, and each evaluation of the whole vault, queries dependency discovery", async () => {
  discovered = [reference("secret.late", false)];
  await fixture.scan(vault("kv-two"), [asset("kv-two", "secret", "late")]);
  expect((await referenceViolations()).map((text) => text.split(":")[0])).toEqual([
    "secret-reference-resolved kv-two.secret.late",
  ]);
  discovered = [];
  await fixture.compliance.handle({ kind: "vault", vault: "kv-two" });
  expect(await referenceViolations()).toEqual([]);
});

test("a reference to a vault outside the inventory causes no violation", async () => {
  await fixture.compliance.referencesChanged("kv-nowhere", ["secret.x"]);
  await fixture.drain();
  expect(await referenceViolations()).toEqual([]);
});

test("a secret is in violation while the logs show no read of it", async () => {
  const unusedSecrets = async () =>
    (await fixture.compliance.violations({}, page)).items
      .filter(({ checkId }) => checkId === "secret-unused")
      .map(({ resourceId, evidence }) => `${resourceId}: ${evidence}`);
  await fixture.scan(vault("kv-one"), [asset("kv-one", "secret", "db"), asset("kv-one", "secret", "api")]);
  const use = (name: string, unused: boolean): AssetUse => ({ asset: `secret.${name}`, unused, evidence: `${name}.` });
  await changeReferences(
    [reference("secret.db", true), use("db", true), use("api", false)],
    ["secret.db", "secret.api"],
  );
  expect([await unusedSecrets(), await referenceViolations()]).toEqual([["kv-one.secret.db: db."], []]);
  await changeReferences([use("db", false), use("api", true)], ["secret.db", "secret.api"]);
  expect(await unusedSecrets()).toEqual(["kv-one.secret.api: api."]);
  await changeReferences([], ["secret.db", "secret.api"]);
  expect(await unusedSecrets()).toEqual([]);
});
