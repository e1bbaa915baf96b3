import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type ApiTokens, createApiTokens } from "../../shared/access/api-tokens.ts";
import type { UserRecord } from "../../shared/access/user.ts";
import { createUsers } from "../../shared/access/users.ts";
import type { Actor } from "../../shared/platform/http/endpoint.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { NOTIFIED_THRESHOLD } from "../support/alert-days.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, type Fixture, openFixture, START } from "./alerts-setup.ts";

/** Tests of alert rules about the service's own credentials that expire, such as API tokens of users. */

let azurite: TestStorage;
let cloud: Cloud;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 14 }, (_, index) => `credentials${index}`);
let usedAccounts = 0;
let fixture: Fixture;
let apiTokens: ApiTokens;

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});

/** The user who creates API tokens: as the caller of a request, and as a stored user. */
const MARIA: Actor = {
  username: "maria",
  role: "user",
  credential: { kind: "session", id: "", since: new Date(START) },
};
const MARIA_RECORD: UserRecord = {
  username: "maria",
  role: "user",
  state: "active",
  tokensValidFrom: START,
  revokedTokens: [],
  revision: "1",
  createdAt: START,
  createdBy: "system",
  updatedAt: START,
};

beforeEach(async () => {
  const audit = { append: async () => {} } as never;
  fixture = openFixture({
    connectionString: azurite.connectionString(ACCOUNTS[usedAccounts++]!),
    cloud,
    credentials: (tables, clock) => {
      const users = createUsers(tables);
      apiTokens = createApiTokens({ tables, users, audit, clock, randomness: systemRandomness(), maxIdleDays: 30 });
      return [apiTokens];
    },
  });
  fixture.instance(); // creates `apiTokens`
  await createUsers(fixture.tables).create(MARIA_RECORD);
});

const createToken = (name: string, expiresInDays: number) =>
  apiTokens.create(MARIA, { name, role: "user", expiresInDays }, caller);
/** Sets the clock to a day after START, evaluates the rules and sends the messages. */
async function run(day: number): Promise<void> {
  fixture.clock.set(new Date(Date.parse(START) + day * DAY_MS));
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleVisibleMessages(alerts);
}
const RULE = { alertType: "serviceCredentialExpiry", thresholds: undefined } as const;

describe("a rule about the service's own credentials", () => {
  test("sends one notification each 30, 14 and 3 days before an API token expires", async () => {
    const { mails } = await fixture.mailRule(RULE);
    await createToken("nightly report", 90);
    const notifiedOn: [day: number, thresholds: string[]][] = [];
    let mailsBefore = 0;
    for (const day of [0, 59.9, 60, 60.1, 75.9, 76, 80, 87, 88, 89.9, 90, 91, 120]) {
      await run(day);
      const newMails = mails().slice(mailsBefore);
      notifiedOn.push([day, newMails.map(({ plainText }) => NOTIFIED_THRESHOLD.exec(plainText ?? "")![1]!)]);
      mailsBefore = mails().length;
    }
    expect(notifiedOn.filter(([, thresholds]) => thresholds.length > 0)).toEqual([
      [60, ["30"]],
      [76, ["14"]],
      [87, ["3"]],
    ]);
    expect(mails()[0]!.subject).toBe("API token “nightly report” expires in 30 days");
    expect(mails()[0]!.plainText).toContain("User: maria");
  });

  test("sends name, expiry and threshold to a webhook", async () => {
    const { received } = await fixture.webhookRule(RULE);
    fixture.clock.add(999);
    const { id } = await createToken("nightly report", 90);
    await run(60.1);
    const item = {
      id: `apiToken:${id}`,
      what: "API token",
      name: "nightly report",
      owner: "maria",
      // Seconds are rounded down.
      expiresOn: new Date(Date.parse(START) + 90 * DAY_MS).toISOString(),
      thresholdDays: 30,
    };
    expect(received().map(({ body }) => JSON.parse(body).data.items)).toEqual([[item]]);
  });

  test("sends one message for several tokens and several reached thresholds", async () => {
    const { mails } = await fixture.mailRule(RULE);
    await createToken("a", 90);
    await createToken("b", 85);
    await run(80);
    await run(81);
    expect(mails()).toHaveLength(1);
    expect(mails()[0]!.subject).toBe(
      "1 credential of the service expires within 7 days, 1 within 30 days; first API token “b” expires in 5 days",
    );
  });

  test("ignores revoked tokens, and thresholds longer than the lifetime of a token", async () => {
    const { mails } = await fixture.mailRule(RULE);
    await createToken("for ten days", 10);
    const { id } = await createToken("revoked", 10);
    await apiTokens.end(MARIA, id, caller);
    await run(0.5);
    expect(mails()).toEqual([]);
    await run(8);
    expect(mails().map(({ subject }) => subject)).toEqual(["API token “for ten days” expires in 2 days"]);
  });

  test("sends a notification for a new token with the name of an expired one", async () => {
    const { mails } = await fixture.mailRule(RULE);
    await createToken("same", 10);
    await run(8);
    await run(11);
    await createToken("same", 10);
    await run(19);
    expect(mails()).toHaveLength(2);
  });

  test("rejects all filters", async () => {
    const rejected = fixture.mailRule({ ...RULE, filters: { vault: "kv-a" } });
    await expect(rejected).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.filters.vault" }] });
  });

  test("can be tested with an example", async () => {
    const { rule, mails } = await fixture.mailRule(RULE);
    const delivery = await fixture.instance().test(rule.ruleId, caller);
    expect(delivery.status).toBe("delivered");
    expect(mails()[0]!.subject).toBe("[Test] API token “example” expires in 2 days");
  });
});
