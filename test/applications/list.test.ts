import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { applicationView } from "../../shared/applications/api.ts";
import type { ApplicationFilter } from "../../shared/applications/query.ts";
import { reasonsAgainst } from "../../shared/applications/rotatable.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { ALL_ITEMS, caller, Deployment, type Process } from "./applications-fixture.ts";

// Tests of the list of applications and of a single application, including the reasons that prevent a rotation.

let azurite: TestStorage;
let live: { cloud: Cloud; config: Config };
let process: Process;

beforeAll(async () => {
  const personal = { audience: "AzureADandPersonalMicrosoftAccount" as const, owners: ["ada@acme.example"] };
  const secret = (name: string, expiresInDays: number) => ({ name, expiresInDays });
  [azurite, live] = await Promise.all([
    openStorage(),
    startTestCloud({
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

const listNames = async (filter: ApplicationFilter) => {
  const page = await process.applications.list(filter, ALL_ITEMS);
  expect(page.total).toBe(page.items.length);
  return page.items.map(({ app }) => app.displayName);
};
const inDays = (days: number) => new Date(Date.now() + days * DAY_MS);

describe("the list of applications", () => {
  test("is sorted by name, ignoring case, and can be filtered", async () => {
    const allNames = [
      "alpha",
      "Beta",
      "gamma|delta/%",
      "Personal",
      "Personal with an expired one",
      "Refused",
      "Saml",
      "Zed",
    ];
    expect(await listNames({})).toEqual(allNames);
    expect(await listNames({ search: "PERSONAL" })).toEqual(["Personal", "Personal with an expired one"]);
    expect(await listNames({ search: appIdOf("Zed").slice(3, 20) })).toEqual(["Zed"]);
    expect(await listNames({ status: "expired" })).toEqual(["Personal with an expired one", "Zed"]);
    expect(await listNames({ status: "critical" })).toEqual(["alpha", "Personal"]);
    expect(await listNames({ status: "critical", search: "a", owner: "ADA@acme.example" })).toEqual([
      "alpha",
      "Personal",
    ]);
    expect(await listNames({ owner: "nobody@acme.example" })).toEqual([]);
    expect(await listNames({ expiresBefore: inDays(4) })).toEqual([
      "alpha",
      "Personal",
      "Personal with an expired one",
      "Zed",
    ]);
    expect(await listNames({ rotatable: false })).toEqual([
      "Beta",
      "gamma|delta/%",
      "Personal",
      "Personal with an expired one",
    ]);
  });

  test.each([{}, { rotatable: true }, { search: "a" }])(
    "with the filter %o returns each application once, with pages of 1, 2 and 5",
    async (filter) => {
      const expectedNames = await listNames(filter);
      for (const limit of [1, 2, 5]) {
        const namesOfPages: string[] = [];
        let cursor: string | undefined;
        do {
          const page = await process.applications.list(filter, { limit, offset: 0, cursor });
          namesOfPages.push(...page.items.map(({ app }) => app.displayName));
          cursor = page.nextCursor ?? undefined;
        } while (cursor !== undefined);
        expect(namesOfPages).toEqual(expectedNames);
        const pageAtOffset = await process.applications.list(filter, { limit, offset: 2, cursor: undefined });
        expect(pageAtOffset.items.map(({ app }) => app.displayName)).toEqual(expectedNames.slice(2, 2 + limit));
      }
      const { nextCursor } = await process.applications.list(filter, { limit: 1, offset: 0, cursor: undefined });
      const withOtherFilter = process.applications.list({ owner: "x" }, { limit: 1, offset: 0, cursor: nextCursor! });
      await expect(withOtherFilter).rejects.toMatchObject({ code: "invalidCursor" });
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
  ])(
    "of another owner has, with the service's permissions %j, these reasons against a rotation: %j",
    async (permissions, codes) => {
      const { app } = await process.applications.get(appIdOf("Beta"));
      const reasonsFound = reasonsAgainst(app, { permissions, objectId: "the-service" }, Date.now());
      expect(reasonsFound.map(({ code }) => code)).toEqual(codes);
    },
  );

  test("has the credentials of its service principal in addition to its own", async () => {
    const { app } = await process.applications.get(appIdOf("Saml"));
    expect(app.kind).toBe("application");
    expect(new Set(app.credentials.map(({ of }) => of))).toEqual(new Set(["application", "servicePrincipal"]));
  });

  test("has its federated credentials and policies read once a day", async () => {
    const id = appIdOf("gamma|delta/%");
    live.cloud.control.resetCounts();
    const application = await process.applications.get(id);
    expect(live.cloud.control.counts().total).toBe(0); // The first test of this group has read and stored them.
    const view = applicationView(application, await process.applications.moment());
    expect(view).toMatchObject({
      federated: [{ name: "main", issuer: "https://i.example", subject: "s" }],
      rotatable: false,
      policy: null,
      credentials: [],
    });
    const { items } = await process.applications.list({ search: "gamma" }, ALL_ITEMS);
    expect(items[0]!.app.details?.federated).toHaveLength(1);
    const nextDay = new Deployment(azurite.connectionString(), live).start({ ahead: 25 * HOUR_MS });
    await nextDay.applications.get(id);
    expect(live.cloud.control.counts()).toMatchObject({ "graph.listFederatedCredentials": 1 });
    // If Graph fails, the application is returned as it was read last.
    live.cloud.control.addFault({ match: {}, action: { kind: "fail", status: 503 } });
    const thirdDay = new Deployment(azurite.connectionString(), live).start({ ahead: 60 * HOUR_MS });
    expect((await thirdDay.applications.get(id)).app.details?.federated).toHaveLength(1);
    live.cloud.control.clearFaults();
  });

  test("is not found by an unknown ID", async () => {
    for (const id of [crypto.randomUUID(), "x", "a!b|c", "../..", "é"])
      await expect(process.applications.get(id)).rejects.toMatchObject({ code: "notFound" });
  });
});
