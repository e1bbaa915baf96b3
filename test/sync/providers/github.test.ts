import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { githubFailure } from "../../../shared/sync/providers/github/failures.ts";
import { github } from "../../../shared/sync/providers/github/provider.ts";
import type { TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { providerOf } from "../../../shared/sync/providers/providers.ts";
import { FAULTS, failureOf, markOf, providersCloud } from "./simulated-provider.ts";
import { providerSuite } from "./suite.ts";

// Tests of GitHub Actions secrets as a sync target: the tests of all providers (suite.ts), and behavior of GitHub alone. GitHub
// stores no mark, which would name the record and the source version of a value.

const started = providersCloud();
afterAll(async () => (await started).cloud.stop());

providerSuite("github actions", async () => {
  const { cloud, deps } = await started;
  const { control } = cloud;
  const hub = control.providers.github;
  let names = 0;
  // The members are explained in suite.ts, which has the tests.
  return {
    provider: providerOf("github")!,
    service: "actions",
    region: undefined,
    settings: {},
    secrets: { token: hub.credentials.token },
    wrongSecrets: { token: "github_pat_wrong" },
    deps,
    unusedName: () => `acme/shop/production/COPY_${names++}`,
    invalidNames: [
      "",
      "DB",
      "acme/DB",
      "acme/shop/1DB",
      "acme/shop/GITHUB_DB",
      "acme/shop/A-B",
      "acme/../DB",
      "a/b/c/d/E",
    ],
    recovers: false,
    conditional: false,
    guarded: true,
    value: (name) => hub.value(name),
    writeByOthers: (name, value) => hub.write(name, value),
    deleteByOthers: (name) => hub.remove(name),
    addTrouble(kind, times) {
      const operation = kind === "lostAfterWrite" ? "github.putSecret" : "github.*";
      control.addFault({ match: { operation }, action: FAULTS[kind], ...(times && { times }) });
    },
    removeFaults: () => control.clearFaults(),
    counts: () => ({ writes: hub.written(), valueReads: 0 }),
    stop: async () => control.clearFaults(),
  };
});

describe("github actions secrets", () => {
  let cloud: Cloud;
  let deps: TargetDependencies;
  let names = 0;
  let name = "";
  beforeAll(async () => {
    ({ cloud, deps } = await started);
  });
  beforeEach(() => {
    name = `acme/shop/DB_${++names}`;
    hub().remaining = undefined;
    cloud.control.clearFaults();
    cloud.control.resetCounts();
  });

  const hub = () => cloud.control.providers.github;
  const open = (secrets: { token?: string; privateKey?: string }, settings = {}) =>
    github.open({ service: "actions", region: undefined }, settings, secrets, deps);
  const byToken = () => open({ token: hub().credentials.token });
  const byApp = (change = {}) => {
    const { privateKey, ...settings } = cloud.control.providers.githubApp();
    return open({ privateKey }, { ...settings, ...change });
  };

  test("of a repository and of its environment are different targets", async () => {
    await byToken().put(name, "for all", markOf("v1"), { exists: false });
    await byToken().put(name.replace("shop/", "shop/production/"), "for one", markOf("v1"), { exists: false });
    expect(hub().value(name)).toBe("for all");
    expect(hub().value(name.replace("shop/", "shop/production/"))).toBe("for one");
  });

  test("are written by an app with one token until the token is revoked", async () => {
    await byApp().put(name, "one", markOf("v1"), await byApp().describe(name));
    expect(hub().value(name)).toBe("one");
    expect(cloud.control.counts()).toMatchObject({ "github.installationToken": 1, "github.putSecret": 1 });
    hub().revokeIssued();
    expect(await byApp().describe(name)).toMatchObject({ exists: true });
    expect(cloud.control.counts()["github.installationToken"]).toBe(2);
  });

  test.each([
    ["an app with another id", { appId: "1" }],
    ["an installation that does not exist", { installationId: "1" }],
  ])("are not written by %s", async (_, change) => {
    expect(await failureOf(byApp(change).describe(name))).toMatchObject({ code: "badCredentials" });
  });

  test("are throttled until the rate limit resets", async () => {
    hub().remaining = 0;
    const failure = await failureOf(byToken().describe(name));
    expect(failure).toMatchObject({ code: "throttled" });
    expect((failure as { retryAfterSeconds: number }).retryAfterSeconds).toBeGreaterThan(1700);
  });

  test.each([
    [{ "retry-after": "60", "x-ratelimit-reset": "9999999999" }, 60],
    [{ "retry-after": "60" }, 60],
    [{ "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1600000090" }, 90],
    [{ "x-ratelimit-remaining": "0" }, undefined],
  ])("are throttled with the headers %j for %s seconds", (headers: Record<string, string>, seconds) => {
    const answer = { status: 403, header: (name: string) => headers[name], json: {} } as never;
    const call = { operation: "write it", provider: "GitHub", grant: "the permission" };
    expect(githubFailure(answer, call, { now: () => new Date(1_600_000_000_000) })).toMatchObject({
      code: "throttled",
      retryAfterSeconds: seconds,
    });
  });

  test("of a repository without permission fail with a remedy", async () => {
    const failure = await failureOf(byToken().put("acme/secret-shop/DB", "one", markOf("v1"), { exists: false }));
    expect(failure).toMatchObject({ code: "notFound", remedy: expect.stringContaining("read and write of Secrets") });
  });

  test("of a renamed repository are not written to the new repository", async () => {
    hub().rename("old-shop");
    const failure = await failureOf(byToken().describe("acme/old-shop/DB"));
    expect(failure).toMatchObject({ code: "notFound", message: expect.stringContaining("renamed") });
  });

  test("have the same name in upper and lower case", () => {
    const { comparableName } = github.services.actions!;
    expect(comparableName!("Acme/Shop/db")).toBe(comparableName!("acme/shop/DB"));
  });

  test.each([
    ["no credential", {}],
    ["an app without its key", { appId: "1", installationId: "2" }],
    ["an app id that is not a number", { appId: "one", installationId: "2", privateKey: "x" }],
    ["an invalid key", { appId: "1", installationId: "2", privateKey: "-----BEGIN RSA PRIVATE KEY-----" }],
    ["two credentials", { token: "t", appId: "1" }],
    ["http", { token: "t", apiUrl: "http://github.example.com/api/v3" }],
  ])("can't be configured with %s", (_, configuration) => {
    expect(github.configuration.safeParse(configuration).success).toBe(false);
  });

  test("can be configured with an app's key in the format of GitHub", () => {
    expect(github.configuration.safeParse(cloud.control.providers.githubApp()).success).toBe(true);
  });
});
