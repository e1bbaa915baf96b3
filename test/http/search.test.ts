import { afterAll, beforeAll, expect, test } from "vitest";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";

// Tests of the search over all kinds of objects, and of the kinds that each role can find.

const PASSWORD = "a password of their own";

let service: Service;
beforeAll(async () => {
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Acme Production",
          vaults: [
            {
              name: "kv-payments",
              secrets: [
                { name: "payments-db", expiresInDays: -2 },
                { name: "smtp", expiresInDays: 200 },
              ],
              // Valid for 47 days. Its policy renews it in 17 days, so it is healthy although it expires within 30 days.
              certificates: [
                {
                  name: "renewed-tls",
                  issuer: "DigiCert",
                  renewal: { action: "AutoRenew", percentage: 80 },
                  validityDays: 47,
                  createdDaysAgo: 20,
                  activeInDays: -20,
                },
              ],
            },
          ],
        },
      ],
      applications: [{ name: "Payments API", secrets: [{ name: "current", expiresInDays: 20 }] }],
    },
    env: { LICENSE_KEY: await licence() },
    tableProxy: true,
  });
  await createUsers(service, [
    { username: "paymaster", password: PASSWORD, role: "user" },
    { username: "pay-auditor", password: PASSWORD, role: "auditor" },
    { username: "pay-operator", password: PASSWORD, role: "operator" },
  ]);
  await service.scan();
  await service.admin("POST", "/api/automation/rotation/discover");
  await service.admin("POST", "/alerts/rules", {
    name: "Payments team",
    alertType: "expiration",
    thresholds: [30],
    recipients: ["pay@acme.example"],
  });
});
afterAll(() => service?.stop());

interface Group {
  kind: string;
  items: { id: string; title: string; detail: string; status: string | null }[];
  total: number | null;
  complete: boolean;
}
async function searchFor(q: string, token?: string): Promise<Map<string, Group>> {
  const path = `/api/search?q=${encodeURIComponent(q)}`;
  const { status, body } = token ? await service.call("GET", path, { token }) : await service.admin("GET", path);
  expect([status, body.complete]).toEqual([200, true]);
  return new Map(body.groups.map((group: Group) => [group.kind, group]));
}

test("a part of a name finds assets, vaults, applications, rules and users, in any case", async () => {
  const groups = await searchFor("PAY");
  expect([...groups.keys()].sort()).toEqual(["application", "asset", "rule", "user", "vault"]);
  expect(groups.get("asset")!.items).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ id: "kv-payments.secret.payments-db", title: "payments-db", status: "expired" }),
      expect.objectContaining({ title: "Payments API/current" }),
    ]),
  );
  expect(groups.get("vault")!.items).toMatchObject([{ id: "kv-payments", detail: "Acme Production" }]);
  expect(groups.get("application")!.items).toMatchObject([{ title: "Payments API", detail: "1 credential" }]);
  expect(groups.get("rule")!.items).toMatchObject([{ title: "Payments team" }]);
  expect(
    groups
      .get("user")!
      .items.map(({ title }) => title)
      .sort(),
  ).toEqual(["pay-auditor", "pay-operator", "paymaster"]);
});

test("an asset has the status of its own page, also a certificate that is healthy until its renewal is late", async () => {
  const [found] = (await searchFor("renewed-tls")).get("asset")!.items;
  const { body } = await service.admin("GET", `/api/assets/discovery/assets/${found!.id}`);
  expect([found!.status, body.status, body.daysUntilExpiry < 30]).toEqual(["healthy", "healthy", true]);
});

test("a violation is found by the title of its failure", async () => {
  const groups = await searchFor("still enabled");
  expect(groups.get("violation")!.items).toMatchObject([
    { id: "secret-expired", title: "Expired secret is still enabled", detail: "1 violation, critical" },
  ]);
});

test("a check whose violations are all exempt comes last and says that none is open", async () => {
  const find = async () => (await searchFor("secret")).get("violation")!.items;
  const [first] = await find();
  const exemption = await service.admin("POST", "/compliance/exemptions", {
    checkId: first!.id,
    scope: { type: "all" },
    category: "waiver",
    reason: "For the test",
    until: new Date(Date.now() + 10 * 86_400_000).toISOString(),
  });
  expect([exemption.status, exemption.text]).toEqual([201, expect.anything()]);
  const items = await find();
  expect(items.length).toBeGreaterThan(1);
  expect(items.at(-1)).toMatchObject({
    id: first!.id,
    detail: expect.stringMatching(/^no open violation, \d+ exempt, /),
  });
  await service.admin("DELETE", `/compliance/exemptions/${exemption.body.id}`);
});

/** The list of each kind that a search for "pay" finds. */
const LISTS: Record<string, string> = {
  application: "/api/automation/rotation/apps?search=pay",
  asset: "/api/assets/discovery/assets?search=pay",
  rule: "/alerts/rules",
  user: "/auth/users",
  vault: "/api/assets/discovery/vaults?search=pay",
};

test.each(["paymaster", "pay-auditor", "pay-operator"])(
  "%s finds the kinds whose lists the role can read, which exclude users",
  async (username) => {
    const own = await service.signIn({ username, password: PASSWORD });
    const groups = await searchFor("pay", own);
    const readable: string[] = [];
    for (const [kind, list] of Object.entries(LISTS))
      if ((await service.call("GET", list, { token: own })).status === 200) readable.push(kind);
    expect([...groups.keys()].sort()).toEqual(readable);
    expect(readable).toEqual(["application", "asset", "rule", "vault"]);
  },
);

test("without a license, the search leaves out what needs one", async () => {
  const { url } = await service.addHost({ LICENSE_KEY: "" });
  const headers = { Authorization: `Bearer ${await service.signIn({ username: "paymaster", password: PASSWORD })}` };
  const answer = await fetch(`${url}/api/search?q=pay`, { headers });
  const { groups } = (await answer.json()) as { groups: Group[] };
  expect(groups.map(({ kind }) => kind)).toEqual(["asset", "vault", "rule"]);
  // The credential of the application is not counted without a license, so it is not found either.
  expect(groups[0]!.items.map(({ title }) => title)).toEqual(["payments-db"]);
});

test("a search for nothing that exists is complete and empty", async () => {
  expect((await searchFor("no such thing")).size).toBe(0);
});

test("a text of one character is rejected", async () => {
  const { status, body } = await service.admin("GET", "/api/search?q=p");
  expect([status, body.errors]).toEqual([400, [{ path: "query.q", message: "must have at least 2 characters" }]]);
});

test("a search costs at most 30 table requests", async () => {
  service.clearTableRequests();
  await searchFor("pay");
  expect(service.tableRequests().length).toBeLessThanOrEqual(30);
});
