import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { applicationView } from "../../shared/applications/api.ts";
import type { ApplicationFilter } from "../../shared/applications/query.ts";
import { reasonsAgainst } from "../../shared/applications/rotatable.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, Deployment, everything, type Process } from "./applications-fixture.ts";

let azurite: TestStorage;
let live: { cloud: Cloud; config: Config };
let process: Process;

beforeAll(async () => {
  const personal = { audience: "AzureADandPersonalMicrosoftAccount" as const, owners: ["ada@acme.example"] };
  const secret = (name: string, expiresInDays: number) => ({ name, expiresInDays });
  [azurite, live] = await Promise.all([
    openStorage(),
    liveIn({
      company: {
        subscriptions: [],
        applications: [
          { name: "alpha", owners: ["Ada@acme.example"], secrets: [secret("a", 3), secret("b", 300)] },
          { name: "Beta", serviceOwns: false, secrets: [secret("a", 20)] },
          {
            name: "gamma|delta/%",
            secrets: [],
            federated: [{ name: "main", issuer: "https://i.example", subject: "s" }],
          },
          { name: "Personal", ...personal, secrets: [secret("a", 3), secret("b", 30)] },
          { name: "Personal with an expired one", ...personal, secrets: [secret("a", -3), secret("b", 30)] },
          { name: "Saml", samlSigning: { expiresInDays: 90 }, secrets: [secret("a", 90)] },
          { name: "Zed", certificates: [{ name: "c", expiresInDays: -1 }], secrets: [secret("a", 400)] },
          { name: "Refused", policy: { additionRefused: true }, secrets: [secret("a", 90)] },
        ],
      },
    }),
  ]);
  process = new Deployment(azurite.connectionString(), live).start();
  await process.applications.discover(caller);
});
afterAll(async () => {
  await live?.cloud.stop();
  await azurite?.stop();
});

const names = async (filter: ApplicationFilter) => {
  const page = await process.applications.list(filter, everything);
  expect(page.total).toBe(page.items.length);
  return page.items.map(({ app }) => app.displayName);
};
const inDays = (days: number) => new Date(Date.now() + days * 86_400_000);

describe("the list of applications", () => {
  test("is sorted by name ignoring case, and each filter returns its matches", async () => {
    const all = [
      "alpha",
      "Beta",
      "gamma|delta/%",
      "Personal",
      "Personal with an expired one",
      "Refused",
      "Saml",
      "Zed",
    ];
    expect(await names({})).toEqual(all);
    expect(await names({ search: "PERSONAL" })).toEqual(["Personal", "Personal with an expired one"]);
    expect(await names({ search: appIdOf("Zed").slice(3, 20).toUpperCase().toLowerCase() })).toEqual(["Zed"]);
    expect(await names({ status: "expired" })).toEqual(["Personal with an expired one", "Zed"]);
    expect(await names({ status: "critical" })).toEqual(["alpha", "Personal"]);
    expect(await names({ status: "critical", search: "a", owner: "ADA@acme.example" })).toEqual(["alpha", "Personal"]);
    expect(await names({ owner: "nobody@acme.example" })).toEqual([]);
    expect(await names({ expiresBefore: inDays(4) })).toEqual([
      "alpha",
      "Personal",
      "Personal with an expired one",
      "Zed",
    ]);
    expect(await names({ rotatable: false })).toEqual([
      "Beta",
      "gamma|delta/%",
      "Personal",
      "Personal with an expired one",
    ]);
  });

  test.each([{}, { rotatable: true }, { search: "a" }])(
    "with %o returns every application once, for any page size",
    async (filter) => {
      const wanted = await names(filter);
      for (const limit of [1, 2, 5]) {
        const walked: string[] = [];
        let cursor: string | undefined;
        do {
          const page = await process.applications.list(filter, { limit, offset: 0, cursor });
          walked.push(...page.items.map(({ app }) => app.displayName));
          cursor = page.nextCursor ?? undefined;
        } while (cursor !== undefined);
        expect(walked).toEqual(wanted);
        const from = await process.applications.list(filter, { limit, offset: 2, cursor: undefined });
        expect(from.items.map(({ app }) => app.displayName)).toEqual(wanted.slice(2, 2 + limit));
      }
      const { nextCursor } = await process.applications.list(filter, { limit: 1, offset: 0, cursor: undefined });
      const other = process.applications.list({ owner: "x" }, { limit: 1, offset: 0, cursor: nextCursor! });
      await expect(other).rejects.toMatchObject({ code: "invalidCursor" });
    },
  );
});

describe("one application", () => {
  const reasons = async (name: string) =>
    (await process.applications.get(appIdOf(name))).reasons.map(({ code }) => code);

  test("lists the reasons that prevent a rotation", async () => {
    expect(await reasons("alpha")).toEqual([]);
    expect(await reasons("Beta")).toEqual(["notOwner"]);
    expect(await reasons("gamma|delta/%")).toEqual(["noSecret"]);
    expect(await reasons("Personal")).toEqual(["noRoomForSecret"]);
    expect(await reasons("Personal with an expired one")).toEqual(["expiredSecretInTheWay"]);
    expect(await reasons("Refused")).toEqual(["forbiddenByPolicy"]);
  });

  test.each([
    [["Application.ReadWrite.All"], []],
    [["Directory.ReadWrite.All"], []],
    [["Application.ReadWrite.OwnedBy"], ["notOwner"]],
    [["Application.Read.All", ""], ["notPermitted"]],
  ])("of another owner can be rotated with the permissions %j except for %j", async (permissions, codes) => {
    const { app } = await process.applications.get(appIdOf("Beta"));
    const against = reasonsAgainst(app, { permissions, objectId: "the-service" }, Date.now());
    expect(against.map(({ code }) => code)).toEqual(codes);
  });

  test("has the credentials of its service principal in addition to its own", async () => {
    const { app } = await process.applications.get(appIdOf("Saml"));
    expect(app.kind).toBe("application");
    expect(new Set(app.credentials.map(({ of }) => of))).toEqual(new Set(["application", "servicePrincipal"]));
  });

  test("reads its federated credentials and policies once a day", async () => {
    const id = appIdOf("gamma|delta/%");
    live.cloud.control.resetCounts();
    const found = await process.applications.get(id);
    expect(live.cloud.control.counts().total).toBe(0); // The previous test has read them.
    const view = applicationView(found, await process.applications.moment());
    expect(view).toMatchObject({
      federated: [{ name: "main", issuer: "https://i.example", subject: "s" }],
      rotatable: false,
      policy: null,
      credentials: [],
    });
    const { items } = await process.applications.list({ search: "gamma" }, everything);
    expect(items[0]!.app.details?.federated).toHaveLength(1);
    const later = new Deployment(azurite.connectionString(), live).start({ ahead: 25 * 3_600_000 });
    await later.applications.get(id);
    expect(live.cloud.control.counts()).toMatchObject({ "graph.listFederatedCredentials": 1 });
    live.cloud.control.addFault({ match: {}, action: { kind: "fail", status: 503 } });
    const muchLater = new Deployment(azurite.connectionString(), live).start({ ahead: 60 * 3_600_000 });
    expect((await muchLater.applications.get(id)).app.details?.federated).toHaveLength(1);
    live.cloud.control.clearFaults();
  });

  test("with an unknown ID is not found", async () => {
    for (const id of [crypto.randomUUID(), "x", "a!b|c", "../..", "é"])
      await expect(process.applications.get(id)).rejects.toMatchObject({ code: "notFound" });
  });
});
