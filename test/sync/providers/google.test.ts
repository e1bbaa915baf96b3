import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { crc32c } from "../../../shared/sync/providers/google/crc32c.ts";
import { google } from "../../../shared/sync/providers/google/provider.ts";
import { markId } from "../../../shared/sync/providers/ownership-mark.ts";
import type { TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { providerOf } from "../../../shared/sync/providers/providers.ts";
import { FAULTS, failureOf, markOf, providersCloud } from "./simulated-provider.ts";
import { providerSuite } from "./suite.ts";

// Tests of Google Secret Manager as a sync target: the tests of all providers (suite.ts), and behavior of Google alone. A mark,
// stored in annotations, names the record and the source version that the value comes from.

const started = providersCloud();
afterAll(async () => (await started).cloud.stop());

providerSuite("google secretmanager", async () => {
  const { cloud, deps } = await started;
  const { control } = cloud;
  const cloudOfGoogle = control.providers.google;
  const { serviceAccountKey = "", projectId } = control.providers.configurations().google!;
  const otherAccount = serviceAccountKey.replace("sync@", "other@");
  let names = 0;
  // The members are explained in suite.ts, which has the tests.
  return {
    provider: providerOf("google")!,
    service: "secretmanager",
    region: undefined,
    settings: { projectId },
    secrets: { serviceAccountKey },
    wrongSecrets: { serviceAccountKey: otherAccount },
    deps,
    unusedName: () => `copy-${names++}`,
    invalidNames: ["", "a/b", "a.b", "ä", "x".repeat(256)],
    recovers: false,
    conditional: true,
    guarded: true,
    value: (name) => cloudOfGoogle.value(name),
    writeByOthers: (name, value) => cloudOfGoogle.write(name, value),
    deleteByOthers: (name) => cloudOfGoogle.remove(name),
    addTrouble(kind, times) {
      const operation = kind === "lostAfterWrite" ? "google.addVersion" : "google.*";
      control.addFault({ match: { operation }, action: FAULTS[kind], ...(times && { times }) });
    },
    removeFaults: () => control.clearFaults(),
    counts: () => ({
      writes: cloudOfGoogle.written(),
      valueReads: control.counts()["google.accessVersion"] ?? 0,
    }),
    stop: async () => control.clearFaults(),
  };
});

describe("google secretmanager", () => {
  let cloud: Cloud;
  let deps: TargetDependencies;
  let names = 0;
  let name = "";
  beforeAll(async () => {
    ({ cloud, deps } = await started);
  });
  beforeEach(() => {
    name = `db-${++names}`;
    cloud.control.clearFaults();
    cloud.control.resetCounts();
  });

  const secretManager = () => cloud.control.providers.google;
  const configuration = () =>
    cloud.control.providers.configurations().google as { projectId: string; serviceAccountKey: string };
  const open = (change: { projectId?: string } = {}) => {
    const { projectId, serviceAccountKey } = { ...configuration(), ...change };
    return google.open({ service: "secretmanager", region: undefined }, { projectId }, { serviceAccountKey }, deps);
  };

  test("signs in once for many records, and again when the token was revoked", async () => {
    secretManager().revokeIssued();
    await open().put(name, "one", markOf("v1"), await open().describe(name));
    expect(cloud.control.counts()["google.token"]).toBe(1);
    secretManager().revokeIssued();
    expect(await open().describe(name)).toMatchObject({ exists: true });
    expect(cloud.control.counts()["google.token"]).toBe(2);
  });

  // The last member is the number of matching requests that succeed before the fault.
  test.each([
    ["before the value", "google.addVersion", { kind: "reset" }, 0],
    ["after the value", "google.addVersion", { kind: "loseAnswer" }, 0],
    ["before the last annotation", "google.updateSecret", { kind: "reset" }, 0],
    ["after the secret was created", "google.createSecret", { kind: "loseAnswer" }, 0],
  ] as const)("has one version if a write fails %s and is repeated", async (_, operation, action, after) => {
    const target = open();
    cloud.control.addFault({ match: { operation }, action, times: 1, after });
    await failureOf(target.put(name, "one", markOf("v1"), await target.describe(name)));
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    expect(await target.describe(name)).toMatchObject({ version: "1", currentMarkId: markId(markOf("v1")) });
  });

  test("with a disabled version gets a new version", async () => {
    const target = open();
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    secretManager().disable(name);
    expect((await target.describe(name)).currentMarkId).toBeUndefined();
    await target.put(name, "one", markOf("v1"), await target.describe(name));
    expect(secretManager().value(name)).toBe("one");
  });

  test("keeps an annotation that another writer adds during the write", async () => {
    const outgoing = {
      send: async (address: string, request: Parameters<typeof deps.outgoing.send>[1]) => {
        if (request.method === "PATCH") secretManager().annotate(name, { team: "payments" });
        return await deps.outgoing.send(address, request);
      },
    };
    const { projectId, serviceAccountKey } = configuration();
    const to = { service: "secretmanager", region: undefined };
    const target = google.open(to, { projectId }, { serviceAccountKey }, { ...deps, outgoing });
    const failure = await failureOf(target.put(name, "one", markOf("v1"), { exists: false }));
    expect(failure).toMatchObject({ code: "changedMeanwhile", providerCode: "FAILED_PRECONDITION" });
    await open().put(name, "one", markOf("v1"), await open().describe(name));
    expect(secretManager().annotations(name)).toMatchObject({
      team: "payments",
      "sync-source": "kv-payments/db-password",
    });
    expect(await open().describe(name)).toMatchObject({ version: "1", currentMarkId: markId(markOf("v1")) });
  });

  test("is written again after a lost response if the value can't be read for comparison", async () => {
    const target = open();
    const match = { operation: "google.addVersion" };
    cloud.control.addFault({ match, action: { kind: "loseAnswer" }, times: 1 });
    await failureOf(target.put(name, "one", markOf("v1"), await target.describe(name)));
    cloud.control.addFault({ match: { operation: "google.accessVersion" }, action: { kind: "deny" } });
    expect(await target.put(name, "one", markOf("v1"), await target.describe(name))).toMatchObject({ version: "2" });
  });

  test("of another project fails with a missing permission", async () => {
    const failure = await failureOf(open({ projectId: "acme-other" }).describe(name));
    expect(failure).toMatchObject({ code: "accessDenied", providerCode: "PERMISSION_DENIED" });
  });

  test("does not send the key to the token address in the key file", async () => {
    const file = JSON.parse(configuration().serviceAccountKey) as Record<string, string>;
    const serviceAccountKey = JSON.stringify({
      ...file,
      token_uri: `${cloud.environment.AZURE_AUTHORITY_HOST}/stolen`,
    });
    const { projectId } = configuration();
    const target = google.open(
      { service: "secretmanager", region: undefined },
      { projectId },
      { serviceAccountKey },
      deps,
    );
    await target.describe(name);
    expect(Object.keys(cloud.control.counts())).toEqual(["google.getSecret", "google.token", "total"]);
  });

  test.each([
    ["an invalid key file", { projectId: "acme-payments", serviceAccountKey: "{}" }],
    [
      "a user's credentials",
      { projectId: "acme-payments", serviceAccountKey: JSON.stringify({ type: "authorized_user" }) },
    ],
    ["a project id with a path", { projectId: "acme/../x" }],
    ["an invalid location", { location: "europe-west1/x" }],
  ])("can't be configured with %s", (_, change) => {
    expect(google.configuration.safeParse({ ...configuration(), ...change }).success).toBe(false);
    expect(google.configuration.safeParse(configuration()).success).toBe(true);
  });

  // https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4
  test.each([
    ["00".repeat(32), 0x8a9136aa],
    ["ff".repeat(32), 0x62a8ab43],
    [Buffer.from("123456789").toString("hex"), 0xe3069283],
  ])("sends checksums that are those of RFC 3720, here for the bytes %s", (hex, sum) => {
    expect(crc32c(Buffer.from(hex, "hex"))).toBe(sum);
  });
});
