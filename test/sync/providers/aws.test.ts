import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../../../infra/local/cloud/cloud.ts";
import { systemClock } from "../../../shared/runtime.ts";
import { aws } from "../../../shared/sync/providers/aws/provider.ts";
import { providerDependencies } from "../../../shared/sync/providers/dependencies.ts";
import { markId } from "../../../shared/sync/providers/mark.ts";
import type { Mark, ProviderDependencies, SyncTarget } from "../../../shared/sync/providers/provider.ts";
import { reachable } from "../../support/reachable.ts";

const REGION = "eu-west-1";

let cloud: Cloud;
let deps: ProviderDependencies;
let name = "";
let made = 0;
beforeAll(async () => {
  cloud = await startCloud({ company: "small" });
  deps = providerDependencies(reachable(cloud), systemClock, () =>
    Promise.reject(new Error("AWS opens no key vault.")),
  );
});
beforeEach(() => {
  name = `app/db-${++made}`;
  cloud.control.resetCounts();
});
afterEach(() => cloud.control.clearFaults());
afterAll(() => cloud?.stop());

const mark = (sourceVersion: string, recordId = "01RECORD"): Mark => ({
  recordId,
  sourceVersion,
  source: "kv-payments/db-password",
});
const open = (service: string, change: { secretAccessKey?: string; accessKeyId?: string; region?: string } = {}) => {
  const { region = REGION, ...key } = change;
  const secrets = { ...cloud.control.providers.aws.key, ...key };
  return aws.open({ service, region }, { region: REGION }, secrets, deps);
};
const put = async (target: SyncTarget, value: string, as: Mark) =>
  await target.put(name, value, as, await target.describe(name));

describe("Secrets Manager", () => {
  let target: SyncTarget;
  const history = () => cloud.control.providers.aws.secretsManager.history(REGION, name);
  const current = () => cloud.control.providers.aws.secretsManager.value(REGION, name);
  beforeEach(() => {
    target = open("secretsmanager");
  });

  test("shows whose a secret is and which source version it holds, and no value is read", async () => {
    expect(await target.describe(name)).toEqual({ exists: false });
    expect(await put(target, "one", mark("v1"))).toEqual({ version: markId(mark("v1")), created: true });
    expect(await put(target, "two", mark("v2"))).toEqual({ version: markId(mark("v2")), created: false });
    expect(await target.describe(name)).toMatchObject({ ownedBy: "01RECORD", holds: markId(mark("v2")) });
    expect(history()).toEqual(["one", "two"]);
    expect(cloud.control.counts()).not.toHaveProperty("secretsmanager.getSecretValue");
  });

  test.each(["loseAnswer", "failAfter"] as const)("is written once where the answer is lost (%s)", async (kind) => {
    for (const operation of ["secretsmanager.createSecret", "secretsmanager.putSecretValue"]) {
      cloud.control.addFault({ match: { operation }, action: { kind, status: 503 } as never, times: 1 });
    }
    await put(target, "one", mark("v1"));
    await put(target, "two", mark("v2"));
    expect(history()).toEqual(["one", "two"]);
    expect(current()).toBe("two");
  });

  test("has its own version made current again without a value, whoever wrote since", async () => {
    await put(target, "one", mark("v1"));
    await put(target, "theirs", mark("x", "somebody"));
    expect((await target.describe(name)).holds).not.toBe(markId(mark("v1")));
    const expected = await target.describe(name);
    expect(await target.restoreVersion!(name, mark("v1"), expected)).toMatchObject({ created: false });
    expect(current()).toBe("one");
    expect(await target.restoreVersion!(name, mark("never written"), expected)).toBeUndefined();
  });

  test("moves the label when a version is written that is there already but not current", async () => {
    await put(target, "one", mark("v1"));
    await put(target, "theirs", mark("x", "somebody"));
    await put(target, "one", mark("v1"));
    expect(current()).toBe("one");
    expect(history()).toEqual(["one", "theirs"]);
  });

  test("counts a move of the label whose answer was lost as done", async () => {
    await put(target, "one", mark("v1"));
    await put(target, "theirs", mark("x", "somebody"));
    cloud.control.addFault({
      match: { operation: "secretsmanager.updateSecretVersionStage" },
      action: { kind: "loseAnswer" },
      times: 1,
    });
    await target.restoreVersion!(name, mark("v1"), await target.describe(name));
    expect(current()).toBe("one");
  });

  test("is deleted with 30 days to restore it, and restored", async () => {
    await put(target, "one", mark("v1"));
    await target.remove(name);
    await target.remove(name);
    const { deletedUntil, ownedBy } = await target.describe(name);
    expect(ownedBy).toBe("01RECORD");
    const days = (Date.parse(deletedUntil!) - Date.now()) / 86_400_000;
    expect(Math.round(days)).toBe(30);
    await expect(put(target, "two", mark("v2"))).rejects.toMatchObject({ code: "targetDeleted" });
    await expect(target.put(name, "two", mark("v2"), { exists: false })).rejects.toMatchObject({
      code: "targetDeleted",
    });
    await target.undelete!(name);
    expect(await target.describe(name)).toMatchObject({ deletedUntil: undefined, holds: markId(mark("v1")) });
    await put(target, "two", mark("v2"));
    expect(current()).toBe("two");
  });

  test("that is not there is deleted by doing nothing", async () => {
    await target.remove(name);
    expect(cloud.control.counts()["secretsmanager.deleteSecret"]).toBe(1);
  });

  test("of somebody else is told as such, and taken over on request", async () => {
    await put(target, "theirs", mark("x", "somebody"));
    expect(await target.describe(name)).toMatchObject({ ownedBy: "somebody" });
    await target.adopt!(name, mark("v1"));
    expect(await target.describe(name)).toMatchObject({ ownedBy: "01RECORD", holds: markId(mark("x", "somebody")) });
  });

  test("that came to be there since is not written over", async () => {
    const expected = await target.describe(name);
    await put(target, "theirs", mark("x", "somebody"));
    await expect(target.put(name, "one", mark("v1"), expected)).rejects.toMatchObject({ code: "changedMeanwhile" });
    expect(current()).toBe("theirs");
  });

  test("that AWS manages, or that is a copy of another region's, is told as refused", async () => {
    await put(target, "one", mark("v1"));
    const { secretsManager } = cloud.control.providers.aws;
    secretsManager.change(REGION, name, { primaryRegion: "us-east-1" });
    expect((await target.describe(name)).refused).toContain("us-east-1");
    await expect(put(target, "two", mark("v2"))).rejects.toMatchObject({ code: "targetRefused" });
    secretsManager.change(REGION, name, { primaryRegion: REGION, owningService: "rds" });
    expect((await target.describe(name)).refused).toContain("another service");
  });
});

describe("Parameter Store", () => {
  let target: SyncTarget;
  const history = () => cloud.control.providers.aws.parameterStore.history(REGION, name);
  beforeEach(() => {
    name = `/app/db-${made}`;
    target = open("parameterstore");
  });

  test("shows whose a parameter is and which source version it holds, and no value is read", async () => {
    expect(await target.describe(name)).toEqual({ exists: false });
    expect(await put(target, "one", mark("v1"))).toEqual({ version: "1", created: true });
    expect(await put(target, "two", mark("v2"))).toEqual({ version: "2", created: false });
    expect(await target.describe(name)).toMatchObject({ ownedBy: "01RECORD", holds: markId(mark("v2")), version: "2" });
    expect(history()).toEqual(["one", "two"]);
    expect(cloud.control.counts()).not.toHaveProperty("ssm.getParameter");
  });

  test("is sent once, and known as written where the answer was lost", async () => {
    await put(target, "one", mark("v1"));
    cloud.control.addFault({ match: { operation: "ssm.putParameter" }, action: { kind: "loseAnswer" }, times: 1 });
    await expect(put(target, "two", mark("v2"))).rejects.toMatchObject({ code: "unreachable" });
    expect((await target.describe(name)).holds).toBe(markId(mark("v2")));
    expect(history()).toEqual(["one", "two"]);
  });

  test("holds nothing of ours once somebody else has written, though the description is still ours", async () => {
    await put(target, "one", mark("v1"));
    const { parameterStore } = cloud.control.providers.aws;
    parameterStore.operation(REGION, "PutParameter", { Name: name, Value: "theirs", Overwrite: true });
    expect(await target.describe(name)).toMatchObject({ ownedBy: "01RECORD", holds: undefined, version: "2" });
  });

  test("of somebody else has no owner until it is adopted; one in clear text is refused", async () => {
    const { parameterStore } = cloud.control.providers.aws;
    parameterStore.operation(REGION, "PutParameter", { Name: name, Value: "theirs", Type: "String" });
    expect(await target.describe(name)).toMatchObject({ ownedBy: null, refused: "it is not a SecureString" });
    await target.adopt!(name, mark("v1"));
    expect(await target.describe(name)).toMatchObject({ ownedBy: "01RECORD" });
    await target.remove(name);
    await target.remove(name);
    expect(await target.describe(name)).toEqual({ exists: false });
  });

  test("that came to be there since is not written over", async () => {
    const expected = await target.describe(name);
    await put(target, "theirs", mark("x", "somebody"));
    await expect(target.put(name, "one", mark("v1"), expected)).rejects.toMatchObject({ code: "changedMeanwhile" });
    expect(history()).toEqual(["theirs"]);
  });
});

describe.each(["secretsmanager", "parameterstore"])("%s tells what went wrong", (service) => {
  test.each([
    ["a wrong secret key", { secretAccessKey: "w".repeat(40) }, "badCredentials", "InvalidSignatureException"],
    ["an unknown key id", { accessKeyId: "AKIA0000000000000000" }, "badCredentials", "UnrecognizedClientException"],
  ])("with %s, in one call", async (_, change, code, providerCode) => {
    const failure = await open(service, change)
      .describe(name)
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ code, providerCode });
    expect(cloud.control.counts().total).toBe(1);
  });

  test.each([
    [{ kind: "deny" }, "accessDenied"],
    [{ kind: "throttle" }, "throttled"],
    [{ kind: "fail", status: 503 }, "unreachable"],
    [{ kind: "garbage", as: "html" }, "badResponse"],
    [{ kind: "reset" }, "unreachable"],
  ] as const)("for %o", async (action, code) => {
    cloud.control.addFault({ action });
    const failure = await open(service)
      .describe(name)
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ name: "SyncFailure", code });
    expect((failure as { remedy: string }).remedy).not.toBe("");
  });
});

describe("the configuration", () => {
  test("is checked with a call that changes nothing, also where rights are for some names only", async () => {
    const secrets = cloud.control.providers.aws.key;
    await aws.check({ region: REGION }, secrets, deps);
    cloud.control.addFault({ action: { kind: "deny" } });
    await aws.check({ region: REGION }, secrets, deps);
    const wrong = { ...secrets, secretAccessKey: "w".repeat(40) };
    await expect(aws.check({ region: REGION }, wrong, deps)).rejects.toMatchObject({ code: "badCredentials" });
    expect(Object.keys(cloud.control.counts())).toEqual(["secretsmanager.describeSecret", "total"]);
  });

  test.each(["eu-west-1.evil.example/", "EU-WEST-1", "eu", "eu-west-1#", "", "eu-west-1\n", "us-gov-west-1.x"])(
    "refuses %j as a region",
    (region) => {
      expect(aws.regionProblem(region, {})).toBeDefined();
      expect(aws.configuration.safeParse({ ...cloud.control.providers.aws.key, region }).success).toBe(false);
    },
  );

  test("takes the regions of every partition", () => {
    for (const region of ["eu-west-1", "us-gov-west-1", "cn-north-1", "ap-southeast-4", "us-iso-east-1"]) {
      expect(aws.regionProblem(region, {})).toBeUndefined();
    }
  });

  test.each([
    ["secretsmanager", "db", undefined],
    ["secretsmanager", "x".repeat(513), "1 to 512"],
    ["secretsmanager", "db-abc123", "hyphen"],
    ["secretsmanager", "a b", "1 to 512"],
    ["parameterstore", "/a/b", undefined],
    ["parameterstore", "a/b", "begin with /"],
    ["parameterstore", "/aws/x", "aws or ssm"],
    ["parameterstore", "/a//b", "empty level"],
    ["parameterstore", "/a".repeat(16), "15 levels"],
  ])("%s and the name %s", (service, text, problem) => {
    const said = aws.services[service]!.nameProblem(text);
    if (problem === undefined) expect(said).toBeUndefined();
    else expect(said).toContain(problem);
  });
});
