import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { aws } from "../../../shared/sync/providers/aws/provider.ts";
import { markId } from "../../../shared/sync/providers/ownership-mark.ts";
import type { SyncTarget, TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { providerOf } from "../../../shared/sync/providers/providers.ts";
import { FAULTS, failureOf, markOf, providersCloud } from "./simulated-provider.ts";
import { providerSuite } from "./suite.ts";

// Tests of the two AWS targets, Secrets Manager and Parameter Store: the tests of all providers (suite.ts), and behavior of
// AWS alone. A mark, stored beside the value, names the record and the source version that the value comes from.

const REGION = "eu-west-1";

/** By service: member of the simulation, prefix of the operations in counts and faults, and prefix of unused names. */
const SERVICES = {
  secretsmanager: { member: "secretsManager", wire: "secretsmanager", prefix: "app/copy" },
  parameterstore: { member: "parameterStore", wire: "ssm", prefix: "/app/copy" },
} as const;

// All tests share one simulated cloud, because AWS SDKs read the trusted certificate authorities at their first connection.
const started = providersCloud();
afterAll(async () => (await started).cloud.stop());

for (const service of ["secretsmanager", "parameterstore"] as const) {
  providerSuite(`aws ${service}`, async () => {
    const { cloud, deps } = await started;
    const { control } = cloud;
    const { key, secretsManager, parameterStore } = control.providers.aws;
    const { member, wire, prefix } = SERVICES[service];
    let names = 0;
    let versionsOfOthers = 0;
    // The members are explained in suite.ts, which has the tests.
    return {
      provider: providerOf("aws")!,
      service,
      region: undefined,
      settings: { region: REGION },
      secrets: { ...key },
      wrongSecrets: { ...key, secretAccessKey: "w".repeat(40) },
      deps,
      unusedName: () => `${prefix}-${names++}`,
      invalidNames:
        service === "secretsmanager" ? ["", "a b", "db-abc123", "x".repeat(513)] : ["", "a/b", "/aws/x", "/a//b"],
      recovers: service === "secretsmanager",
      conditional: false,
      guarded: false,
      value: (name) => control.providers.aws[member].value(REGION, name),
      writeByOthers(name, value) {
        const exists = control.providers.aws[member].history(REGION, name).length > 0;
        if (service === "parameterstore") {
          const mode = exists ? { Overwrite: true } : { Type: "SecureString" };
          parameterStore.operation(REGION, "PutParameter", { Name: name, Value: value, ...mode });
          return;
        }
        const body = { SecretString: value, ClientRequestToken: `by-others-${versionsOfOthers++}`.padEnd(36, "x") };
        if (exists) secretsManager.operation(REGION, "PutSecretValue", { SecretId: name, ...body });
        else secretsManager.operation(REGION, "CreateSecret", { Name: name, ...body });
      },
      deleteByOthers(name) {
        if (service === "parameterstore") parameterStore.operation(REGION, "DeleteParameter", { Name: name });
        else secretsManager.operation(REGION, "DeleteSecret", { SecretId: name });
      },
      addTrouble(kind, times) {
        const name = service === "parameterstore" ? "put*" : "*";
        const operation = kind === "lostAfterWrite" ? `${wire}.${name}` : `${wire}.*`;
        control.addFault({ match: { operation }, action: FAULTS[kind], ...(times && { times }) });
      },
      removeFaults: () => control.clearFaults(),
      counts() {
        const { "secretsmanager.getSecretValue": secrets = 0, "ssm.getParameter": parameters = 0 } = control.counts();
        return { writes: control.providers.aws[member].written(), valueReads: secrets + parameters };
      },
      stop: async () => cloud.control.clearFaults(),
    };
  });
}

let cloud: Cloud;
let deps: TargetDependencies;
let name = "";
let names = 0;
beforeAll(async () => {
  ({ cloud, deps } = await started);
});
beforeEach(() => {
  name = `app/db-${++names}`;
  cloud.control.clearFaults();
  cloud.control.resetCounts();
});

const open = (service: string, change: { secretAccessKey?: string; accessKeyId?: string } = {}) =>
  aws.open({ service, region: undefined }, { region: REGION }, { ...cloud.control.providers.aws.key, ...change }, deps);
/** Describes and writes the target, by default with the mark of the source version `v1`. `somebody` is another record. */
const put = async (target: SyncTarget, value: string, mark = markOf("v1")) =>
  await target.put(name, value, mark, await target.describe(name));

describe("aws secretsmanager", () => {
  let target: SyncTarget;
  const history = () => cloud.control.providers.aws.secretsManager.history(REGION, name);
  const current = () => cloud.control.providers.aws.secretsManager.value(REGION, name);
  beforeEach(() => {
    target = open("secretsmanager");
  });

  test.each(["loseAnswer", "failAfter"] as const)("is written once if the response is lost (%s)", async (kind) => {
    for (const operation of ["secretsmanager.createSecret", "secretsmanager.putSecretValue"]) {
      cloud.control.addFault({ match: { operation }, action: { kind, status: 503 } as never, times: 1 });
    }
    await put(target, "one");
    await put(target, "two", markOf("v2"));
    expect(history()).toEqual(["one", "two"]);
    expect(current()).toBe("two");
  });

  test("has its own version restored without the value", async () => {
    await put(target, "one");
    await put(target, "theirs", markOf("x", "somebody"));
    const expected = await target.describe(name);
    expect(await target.restoreVersion!(name, markOf("v1"), expected)).toMatchObject({ created: false });
    expect(current()).toBe("one");
    expect(history()).toEqual(["one", "theirs"]);
    expect(await target.restoreVersion!(name, markOf("never written"), expected)).toBeUndefined();
  });

  test("is restored by moving the label if the version exists but is not current", async () => {
    await put(target, "one");
    await put(target, "theirs", markOf("x", "somebody"));
    await put(target, "one");
    expect(current()).toBe("one");
    expect(history()).toEqual(["one", "theirs"]);
  });

  test("is restored also if the response to the move of the label is lost", async () => {
    await put(target, "one");
    await put(target, "theirs", markOf("x", "somebody"));
    const match = { operation: "secretsmanager.updateSecretVersionStage" };
    cloud.control.addFault({ match, action: { kind: "loseAnswer" }, times: 1 });
    await target.restoreVersion!(name, markOf("v1"), await target.describe(name));
    expect(current()).toBe("one");
  });

  test("is deleted with 30 days to restore it", async () => {
    await put(target, "one");
    await target.remove(name);
    const days = (Date.parse((await target.describe(name)).deletedUntil!) - Date.now()) / 86_400_000;
    expect(Math.round(days)).toBe(30);
    expect(history()).toEqual(["one"]);
  });

  test("is not written over a version that was added after the description", async () => {
    const expected = await target.describe(name);
    await put(target, "theirs", markOf("x", "somebody"));
    const failure = await failureOf(target.put(name, "one", markOf("v1"), expected));
    expect(failure).toMatchObject({ code: "changedMeanwhile" });
    expect(current()).toBe("theirs");
  });

  test("that AWS manages or that is a replica is reported as not writable", async () => {
    await put(target, "one");
    const { secretsManager } = cloud.control.providers.aws;
    secretsManager.change(REGION, name, { primaryRegion: "us-east-1" });
    expect((await target.describe(name)).refused).toContain("us-east-1");
    expect(await failureOf(put(target, "two", markOf("v2")))).toMatchObject({ code: "targetRefused" });
    secretsManager.change(REGION, name, { primaryRegion: REGION, owningService: "rds" });
    expect((await target.describe(name)).refused).toContain("another service");
  });
});

describe("aws parameterstore", () => {
  let target: SyncTarget;
  const history = () => cloud.control.providers.aws.parameterStore.history(REGION, name);
  beforeEach(() => {
    name = `/app/db-${names}`;
    target = open("parameterstore");
  });

  test("is sent once and recognized as written if the response is lost", async () => {
    await put(target, "one");
    cloud.control.addFault({ match: { operation: "ssm.putParameter" }, action: { kind: "loseAnswer" }, times: 1 });
    expect(await failureOf(put(target, "two", markOf("v2")))).toMatchObject({ code: "unreachable" });
    expect((await target.describe(name)).currentMarkId).toBe(markId(markOf("v2")));
    expect(history()).toEqual(["one", "two"]);
  });

  test("that AWS rejects fails with the code of AWS", async () => {
    // This value would be a reference to another parameter.
    const failure = await failureOf(target.put(name, "{{ssm:/other}}", markOf("v1"), { exists: false }));
    expect(failure).toMatchObject({ code: "targetRefused", providerCode: "ValidationException" });
    const deep = await failureOf(target.put("/x".repeat(16), "one", markOf("v1"), { exists: false }));
    expect(deep).toMatchObject({ code: "targetRefused", providerCode: "HierarchyLevelLimitExceededException" });
  });

  test("is found among many others of the region", async () => {
    const { parameterStore } = cloud.control.providers.aws;
    const plant = (Name: string) =>
      parameterStore.operation(REGION, "PutParameter", { Name, Value: "x", Type: "String" });
    for (let other = 0; other < 60; other++) plant(`/a/other-${names}-${other}`);
    await put(target, "one");
    expect(await target.describe(name)).toMatchObject({ exists: true, currentMarkId: markId(markOf("v1")) });
  });

  test("in clear text is not overwritten", async () => {
    const { parameterStore } = cloud.control.providers.aws;
    parameterStore.operation(REGION, "PutParameter", { Name: name, Value: "theirs", Type: "String" });
    expect(await target.describe(name)).toMatchObject({ ownedBy: null, refused: "it is not a SecureString" });
  });

  test("that was created after the description is not overwritten", async () => {
    const expected = await target.describe(name);
    await put(target, "theirs", markOf("x", "somebody"));
    const failure = await failureOf(target.put(name, "one", markOf("v1"), expected));
    expect(failure).toMatchObject({ code: "changedMeanwhile" });
    expect(history()).toEqual(["theirs"]);
  });
});

describe.each(["secretsmanager", "parameterstore"])("aws %s", (service) => {
  test.each([
    ["a wrong secret key", { secretAccessKey: "w".repeat(40) }, "InvalidSignatureException"],
    ["an unknown key id", { accessKeyId: "AKIA0000000000000000" }, "UnrecognizedClientException"],
  ])("reports %s after one call", async (_, change, providerCode) => {
    const failure = await failureOf(open(service, change).describe(name));
    expect(failure).toMatchObject({ code: "badCredentials", providerCode });
    expect(cloud.control.counts().total).toBe(1);
  });

  test("reports wrong credentials only for the configured region, because another region may not be enabled", async () => {
    cloud.control.addFault({ match: { item: name }, action: { kind: "fail", status: 401 } });
    const settings = { region: "us-east-1" };
    const { key } = cloud.control.providers.aws;
    const codes = ["us-east-1", "ap-east-1"].map(async (region) => {
      const target = aws.open({ service, region }, settings, key, deps);
      return ((await failureOf(target.put(name, "one", markOf("v1"), { exists: false }))) as { code?: string }).code;
    });
    expect(await Promise.all(codes)).toEqual(["badCredentials", "accessDenied"]);
  });
});

test.each(["secretsmanager", "parameterstore"] as const)(
  "a host whose clock is wrong by ten minutes can write to aws %s",
  async (service) => {
    const { cloud, deps } = await started;
    const now = Date.now.bind(Date);
    // Only for calls by the SDK, because the simulated cloud runs in this process too.
    const inSdk = () => /node_modules.@(aws-sdk|smithy)/.test(new Error().stack?.split("\n").slice(3, 5).join() ?? "");
    const clock = vi.spyOn(Date, "now").mockImplementation(() => now() + (inSdk() ? 10 * 60_000 : 0));
    try {
      const { key } = cloud.control.providers.aws;
      const target = aws.open({ service, region: undefined }, { region: REGION }, key, deps);
      const name = `/app/late-${service}x`;
      await target.put(name, "one", markOf("v1"), await target.describe(name));
      expect((await target.describe(name)).currentMarkId).toBe(markId(markOf("v1")));
      expect(cloud.control.requests({}).filter(({ status }) => status === 400).length).toBeGreaterThan(0);
    } finally {
      clock.mockRestore();
    }
  },
);

describe("the configuration of aws", () => {
  test("is accepted if its permissions are limited to some names", async () => {
    cloud.control.addFault({ action: { kind: "deny" } });
    await aws.check({ region: REGION }, cloud.control.providers.aws.key, deps);
    expect(cloud.control.counts()).toEqual({ "secretsmanager.describeSecret": 1, total: 1 });
  });

  test.each(["eu-west-1.evil.example/", "EU-WEST-1", "eu", "eu-west-1#", "", "eu-west-1\n", "us-gov-west-1.x"])(
    "rejects the region %j",
    (region) => {
      expect(aws.regionProblem(region, {})).toBeDefined();
      expect(aws.configuration.safeParse({ ...cloud.control.providers.aws.key, region }).success).toBe(false);
    },
  );

  test("accepts regions of all partitions", () => {
    for (const region of ["eu-west-1", "us-gov-west-1", "cn-north-1", "ap-southeast-4", "us-iso-east-1"]) {
      expect(aws.regionProblem(region, {})).toBeUndefined();
    }
  });
});
