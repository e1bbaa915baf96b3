// A scan of a small simulated company over HTTP, and the lists, filters and exports of the resulting inventory.
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, Service } from "../support/service.ts";

const DAY_MS = 86_400_000;

/**
 * The company: small enough to check by eye, with at least one object of every kind. An asset is `critical` if it expires within
 * 7 days, and `warning` within 30 days.
 */
const company: Company = {
  subscriptions: [
    {
      name: "Payments",
      id: "11111111-1111-4111-8111-111111111111",
      vaults: [
        {
          name: "kv-payments",
          secrets: [
            {
              name: "db-password",
              expiresInDays: 3.5,
              tags: { owner: "team-pay", env: "prod" },
              contentType: "text/plain",
            },
            { name: "Api-Key", expiresInDays: -2 },
            { name: "forever" },
            { name: "switched-off", enabled: false, expiresInDays: 20 },
          ],
          keys: [
            { name: "signing", expiresInDays: 25 },
            { name: "curve", type: "EC", curve: "P-384", expiresInDays: 400 },
          ],
          certificates: [{ name: "tls-www", validityMonths: 12, dnsNames: ["www.acme.example"], issuer: "DigiCert" }],
        },
        { name: "kv-empty" },
      ],
    },
    {
      name: "Web",
      id: "22222222-2222-4222-8222-222222222222",
      vaults: [
        {
          name: "kv-web",
          secrets: [
            { name: "db-password", expiresInDays: 90 },
            { name: "token", expiresInDays: 6.9 },
          ],
        },
        { name: "kv-denied", reach: "denied", secrets: [{ name: "hidden" }] },
        { name: "kv-walled", reach: "firewalled", secrets: [{ name: "hidden" }] },
        {
          name: "kv-half",
          deniedKinds: ["keys"],
          secrets: [{ name: "seen", expiresInDays: 40 }],
          keys: [{ name: "unseen" }],
        },
      ],
    },
  ],
};

let service: Service;
// biome-ignore lint/suspicious/noExplicitAny: the status as the API answers it
let firstScan: any;
beforeAll(async () => {
  service = await Service.start({ company });
  firstScan = await service.scan({ mode: "full" });
});
afterAll(() => service?.stop());

const assets = (query = "") => service.listAll(`/api/assets/discovery/assets${query}`);
const ids = async (query: string) => (await assets(query)).map((asset) => asset.id);

describe("a full scan", () => {
  test("ends as partial if some vaults could not be read", () => {
    expect(firstScan.status).toBe("partial");
    expect(firstScan.progress).toMatchObject({
      vaultsTotal: 6,
      vaultsDone: 6,
      vaultsFailed: 2,
      assetsFound: 10,
      assetsAdded: 10,
    });
  });

  test("returns each vault's outcome and remedy", async () => {
    const { body } = await service.admin("GET", `/api/assets/discovery/scan/${firstScan.scanId}/results`);
    const byName = new Map(body.items.map((item: { vaultName: string }) => [item.vaultName, item]));
    expect(byName.get("kv-payments")).toMatchObject({ outcome: "succeeded", tally: { added: 7 } });
    expect(byName.get("kv-denied")).toMatchObject({ outcome: "failed", failures: [{ code: "accessDenied" }, {}, {}] });
    expect(byName.get("kv-walled")).toMatchObject({ outcome: "failed", failures: [{ code: "firewall" }, {}, {}] });
    expect(byName.get("kv-half")).toMatchObject({
      outcome: "partial",
      failures: [{ list: "keys", code: "accessDenied" }],
    });
    for (const item of body.items)
      for (const failure of item.failures) expect(failure.remedy.length).toBeGreaterThan(20);
  });

  test("returns each vault's result once, page by page", async () => {
    const path = `/api/assets/discovery/scan/${firstScan.scanId}/results`;
    const allIds = (await service.listAll(path)).map(({ vaultName }) => vaultName);
    expect(allIds).toHaveLength(6);
    const names: string[] = [];
    let cursor = "";
    for (let page = 0; page < 3; page++) {
      const { body } = await service.admin("GET", `${path}?limit=2${cursor}`);
      expect(body.total).toBe(6);
      names.push(...body.items.map((item: { vaultName: string }) => item.vaultName));
      cursor = `&cursor=${body.nextCursor}`;
      if (page === 2) expect(body.nextCursor).toBeNull();
    }
    expect(names).toEqual(allIds);
    // A cursor contains the index of a vault, so `!` is invalid.
    const invalid = Buffer.from(JSON.stringify({ after: "!" })).toString("base64url");
    expect((await service.admin("GET", `${path}?cursor=${invalid}`)).body.code).toBe("invalidCursor");
  });

  test("stores all properties that the vault returned", async () => {
    const { body } = await service.admin("GET", "/api/assets/discovery/assets/kv-payments.secret.db-password");
    expect(body).toMatchObject({
      id: "kv-payments.secret.db-password",
      status: "critical",
      enabled: true,
      daysUntilExpiry: 3,
      contentType: "text/plain",
      tags: { owner: "team-pay", env: "prod" },
      owner: "team-pay",
      vaultName: "kv-payments",
      portalUrl: expect.stringMatching(
        /^https:\/\/portal\.azure\.com\/#@[\w-]+\/asset\/Microsoft_Azure_KeyVault\/Secret\/https:\/\/kv-payments\..+\/secrets\/db-password$/,
      ),
    });
    expect(body).not.toHaveProperty("keyType");
    const certificate = (await service.admin("GET", "/api/assets/discovery/assets/kv-payments.certificate.tls-www"))
      .body;
    expect(certificate).toMatchObject({
      issuer: expect.stringContaining("DigiCert"),
      validityMonths: 12,
      keyType: "RSA",
      keySize: 2048,
    });
    expect(certificate.subjectAlternativeNames).toContain("www.acme.example");
    expect(certificate.thumbprint).toMatch(/^[0-9A-Fa-f]{40}$/);
    const curve = (await service.admin("GET", "/api/assets/discovery/assets/KV-Payments.key.Curve")).body;
    expect(curve).toMatchObject({ keyType: "EC", keyCurve: "P-384", rotationPolicy: { lifetimeActions: [{}] } });
  });

  test("omits the keys and secrets that only back a certificate", async () => {
    expect(await ids("?vault=kv-payments&search=tls")).toEqual(["kv-payments.certificate.tls-www"]);
  });
});

describe("the inventory", () => {
  test("lists all assets by name, then type and vault", async () => {
    const names = (await assets()).map((asset) => asset.name.toLowerCase());
    expect(names).toEqual([...names].sort());
    expect(names).toHaveLength(10);
  });

  test.each([
    ["?status=expired", ["kv-payments.secret.api-key"]],
    ["?status=critical", ["kv-payments.secret.db-password", "kv-web.secret.token"]],
    ["?status=warning", ["kv-payments.secret.switched-off", "kv-payments.key.signing"]],
    ["?status=warning&enabled=true", ["kv-payments.key.signing"]],
    ["?type=key", ["kv-payments.key.curve", "kv-payments.key.signing"]],
    ["?type=secret&vault=kv-web", ["kv-web.secret.db-password", "kv-web.secret.token"]],
    [
      "?vault=KV-WEB&status=critical&type=secret&subscription=22222222-2222-4222-8222-222222222222",
      ["kv-web.secret.token"],
    ],
    ["?vault=kv-web&subscription=11111111-1111-4111-8111-111111111111", []],
    ["?subscription=22222222-2222-4222-8222-222222222222&search=DB", ["kv-web.secret.db-password"]],
    ["?tag=env", ["kv-payments.secret.db-password"]],
    ["?tag=env%3Dtest", []],
    ["?owner=team-pay", ["kv-payments.secret.db-password"]],
    [
      `?expiresBefore=${new Date(Date.now() + 5 * DAY_MS).toISOString()}`,
      ["kv-payments.secret.api-key", "kv-payments.secret.db-password"],
    ],
    [
      `?expiresAfter=${new Date(Date.now() + 4 * DAY_MS).toISOString()}&expiresBefore=${new Date(Date.now() + 30 * DAY_MS).toISOString()}`,
      ["kv-web.secret.token", "kv-payments.secret.switched-off", "kv-payments.key.signing"],
    ],
    ["?vault=no-such-vault", []],
  ])("filtered by %s contains the matching assets", async (query, expected) => {
    expect(await ids(query)).toEqual(expected);
  });

  test("returns the same rows for all page sizes", async () => {
    const allIds = await ids("");
    const idsOfPages: string[] = [];
    let cursor = "";
    do {
      const { body } = await service.admin("GET", `/api/assets/discovery/assets?limit=3${cursor}`);
      expect(body.total).toBe(10);
      idsOfPages.push(...body.items.map((item: { id: string }) => item.id));
      cursor = body.nextCursor === null ? "" : `&cursor=${body.nextCursor}`;
    } while (cursor !== "");
    expect(idsOfPages).toEqual(allIds);
    const { body } = await service.admin("GET", "/api/assets/discovery/assets?limit=4&offset=5");
    expect(body.items.map((item: { id: string }) => item.id)).toEqual(allIds.slice(5, 9));
  });

  test("has totals that add up over the statuses", async () => {
    const totals = await Promise.all(
      ["healthy", "warning", "critical", "expired"].map(
        async (status) =>
          (await service.admin("GET", `/api/assets/discovery/assets?status=${status}&limit=1`)).body.total,
      ),
    );
    expect(totals).toEqual([5, 2, 2, 1]);
  });

  test("exports CSV that a spreadsheet can open", async () => {
    const answer = await service.admin("GET", "/api/assets/discovery/assets?format=csv&vault=kv-web");
    expect(answer.headers.get("content-type")).toBe("text/csv; charset=utf-8");
    const [header, ...lines] = answer.text.trimEnd().split("\r\n");
    expect(header).toContain('"id","type","name"');
    expect(lines).toHaveLength(2);
    const exported = await service.admin("GET", "/api/assets/discovery/export/csv?vault=kv-web");
    expect([exported.headers.get("content-type"), exported.text]).toEqual([
      answer.headers.get("content-type"),
      answer.text,
    ]);
  });

  test("exports CSV in parts, each with a link to the next part", async () => {
    const lines: string[] = [];
    let path: string | undefined = "/api/assets/discovery/assets?format=csv&limit=3&offset=2";
    while (path) {
      const part: Answer = await service.admin("GET", path);
      expect(part.status).toBe(200);
      lines.push(...part.text.trimEnd().split("\r\n").slice(1));
      path = /^<([^>]+)>; rel="next"$/.exec(part.headers.get("link") ?? "")?.[1];
    }
    const names = (await assets()).slice(2).map((asset) => asset.id);
    expect(lines.map((line) => line.split(",")[0]!.replaceAll('"', ""))).toEqual(names);
  });

  test.each([
    ["?status=sick", "query.status"],
    ["?limit=0", "query.limit"],
    ["?limit=1001", "query.limit"],
    ["?offset=10001", "query.offset"],
    ["?cursor=nonsense", "query.cursor"],
    ["?vault=a/b", "query.vault"],
    ["?subscription=not-a-guid", "query.subscription"],
    ["?status=expired&sort=name", "query.sort"],
    ["?colour=red", "query.colour"],
    ["?type=key&type=secret", "query.type"],
    ["?expiresBefore=yesterday", "query.expiresBefore"],
  ])("rejects %s with 400 and the parameter's name", async (query, path) => {
    const { status, body } = await service.admin("GET", `/api/assets/discovery/assets${query}`);
    expect(status).toBe(400);
    expect(body.errors.map((error: { path: string }) => error.path)).toContain(path);
  });

  test("responds to an unknown ID with 404", async () => {
    for (const id of ["kv-web.secret.nothing", "nonsense", "a.b.c", "%2F..%2F"]) {
      expect((await service.admin("GET", `/api/assets/discovery/assets/${id}`)).status).toBe(404);
    }
    expect((await service.admin("GET", "/api/assets/discovery/scan/01ARZ3NDEKTSV4RRFFQ69G5FAV/status")).status).toBe(
      404,
    );
  });

  test("lists its vaults with the health of their assets", async () => {
    const vaults = await service.listAll("/api/assets/discovery/vaults");
    expect(vaults.map((vault) => vault.name)).toEqual([
      "kv-denied",
      "kv-empty",
      "kv-half",
      "kv-payments",
      "kv-walled",
      "kv-web",
    ]);
    expect(vaults[3]).toMatchObject({
      assets: { secret: 4, key: 2, certificate: 1 },
      health: { expired: 1, critical: 1, warning: 2, healthy: 3 },
    });
    expect(vaults[0].failures.map((failure: { code: string }) => failure.code)).toEqual([
      "accessDenied",
      "accessDenied",
      "accessDenied",
    ]);
    const failing = await service.listAll("/api/assets/discovery/vaults?failing=true");
    expect(failing.map((vault) => vault.name)).toEqual(["kv-denied", "kv-half", "kv-walled"]);
    const { body } = await service.admin("GET", "/api/assets/discovery/vaults?failing=false&limit=2");
    expect([body.total, body.items[0].failures]).toEqual([3, []]);
    const found = await service.listAll("/api/assets/discovery/vaults?search=WALL");
    expect(found.map((vault) => vault.name)).toEqual(["kv-walled"]);
  });
});
