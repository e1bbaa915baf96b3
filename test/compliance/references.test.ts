import { afterAll, beforeAll, expect, test } from "vitest";
import type { AssetUse, Reference } from "../../shared/compliance/references.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, type Fixture, openFixture, vault } from "./compliance-fixture.ts";

let storage: TestStorage;
let fixture: Fixture;
let asked = 0;
/** Known references from dependency discovery. */
let known: (Reference | AssetUse)[] = [];

beforeAll(async () => {
  storage = await openStorage();
  fixture = openFixture(storage.connectionString(), undefined, async () => {
    asked++;
    return known;
  });
});
afterAll(() => storage?.stop());

const page = { limit: 100, offset: 0, cursor: undefined };
const failing = async () =>
  (await fixture.compliance.violations({}, page)).items
    .filter(({ checkId }) => checkId.endsWith("-reference-resolved"))
    .map(({ checkId, resourceId, evidence }) => `${checkId} ${resourceId}: ${evidence}`);
const named = (name: string | undefined, resolved: boolean, who = "app"): Reference => ({
  asset: name,
  resolved,
  evidence: `${who} (webApp), A: ${resolved ? "Resolved" : "SecretNotFound"}`,
});
const changed = async (references: typeof known, assets: string[]) => {
  known = references;
  await fixture.compliance.referencesChanged("KV-One", assets);
  await fixture.drain();
};

test("a reference that can't be resolved is a violation of its target until it is resolved", async () => {
  const one = asset("kv-one", "secret", "db");
  const certificate = asset("kv-one", "certificate", "web");
  await fixture.scan(vault("kv-one"), [one, certificate]);
  expect(await failing()).toEqual([]);
  const before = await fixture.compliance.score();

  const all = [
    named("secret.db", false),
    named("secret.db", true, "other"),
    named("secret.web", false),
    named("secret.gone", false),
    named(undefined, true),
  ];
  await changed(all, ["secret.db", "secret.web", "secret.gone"]);
  expect(await failing()).toEqual([
    "certificate-reference-resolved kv-one.certificate.web: 1 reference does not resolve: app (webApp), A: SecretNotFound.",
    "secret-reference-resolved kv-one.secret.db: 1 reference does not resolve: app (webApp), A: SecretNotFound.",
    "vault-reference-resolved kv-one: 1 reference does not resolve: app (webApp), A: SecretNotFound.",
  ]);
  expect((await fixture.compliance.score()).total).toBe(before.total + 3);

  // A scan uses the stored references: the missing secret exists now, and dependency discovery was not queried.
  asked = 0;
  await fixture.scan(vault("kv-one"), [one, certificate, asset("kv-one", "secret", "gone")]);
  expect(asked).toBe(0);
  expect((await failing()).map((text) => text.split(":")[0])).toEqual([
    "certificate-reference-resolved kv-one.certificate.web",
    "secret-reference-resolved kv-one.secret.db",
    "secret-reference-resolved kv-one.secret.gone",
  ]);

  await changed([named("secret.db", true), named("secret.gone", true)], ["secret.db", "secret.gone", "secret.web"]);
  expect(await failing()).toEqual([]);
  const { total } = await fixture.compliance.score();
  await changed([], ["secret.db", "secret.gone"]);
  expect((await fixture.compliance.score()).total).toBe(total - 2);
});

test("a new vault, and one that is evaluated completely, reads the known references", async () => {
  known = [named("secret.late", false)];
  await fixture.scan(vault("kv-two"), [asset("kv-two", "secret", "late")]);
  expect((await failing()).map((text) => text.split(":")[0])).toEqual(["secret-reference-resolved kv-two.secret.late"]);
  known = [];
  await fixture.compliance.handle({ kind: "vault", vault: "kv-two" });
  expect(await failing()).toEqual([]);
});

test("a reference to an unknown vault is no violation", async () => {
  await fixture.compliance.referencesChanged("kv-nowhere", ["secret.x"]);
  await fixture.drain();
  expect(await failing()).toEqual([]);
});

test("a secret without a read in the logs is a violation until it is read; without logs there is none", async () => {
  const unused = async () =>
    (await fixture.compliance.violations({}, page)).items
      .filter(({ checkId }) => checkId === "secret-unused")
      .map(({ resourceId, evidence }) => `${resourceId}: ${evidence}`);
  await fixture.scan(vault("kv-one"), [asset("kv-one", "secret", "db"), asset("kv-one", "secret", "api")]);
  const use = (name: string, unused: boolean): AssetUse => ({ asset: `secret.${name}`, unused, evidence: `${name}.` });
  await changed([named("secret.db", true), use("db", true), use("api", false)], ["secret.db", "secret.api"]);
  expect([await unused(), await failing()]).toEqual([["kv-one.secret.db: db."], []]);
  await changed([use("db", false), use("api", true)], ["secret.db", "secret.api"]);
  expect(await unused()).toEqual(["kv-one.secret.api: api."]);
  await changed([], ["secret.db", "secret.api"]);
  expect(await unused()).toEqual([]);
});
