import type { Cloud } from "simulated-cloud/cloud.ts";
import { acmeCompany } from "simulated-cloud/company/acme.ts";
import { guidFrom } from "simulated-cloud/vaults/identifiers.ts";
import { parseTemplates } from "template-checks/check.ts";
import { readInfraFiles } from "template-checks/files.ts";
import { grantsOf } from "template-checks/grants.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createAzureEdges } from "../../shared/dependencies/azure/source.ts";
import type { Edge } from "../../shared/dependencies/edge.ts";
import type { EdgeSource, NotSeen, ReadingItem } from "../../shared/dependencies/edge-source.ts";
import { createAppConfigurationReferences } from "../../shared/platform/azure/app-configuration-references.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { failureOf, IMPATIENT, recordingLog } from "../azure/services.ts";

/** The Azure source on the company acme, over the HTTP interface of the simulated cloud. */

const MANY = "44444444-4444-4444-8444-444444444444";
const EMPTY = "55555555-4444-4444-8444-444444444444";
const SITES = 200;

let cloud: Cloud;
let source: EdgeSource;
/** The object id of the service's own principal. */
let own: string | undefined;
const log = recordingLog();

beforeAll(async () => {
  const acme = acmeCompany(1);
  const many = { id: MANY, name: "Many", vaults: [{ name: "kv-many" }], generate: { sites: SITES } };
  const roleAssignments = [{ principal: "reads-all", principalType: "ServicePrincipal", role: "Reader" } as const];
  const empty = { id: EMPTY, name: "Empty", vaults: [{ name: "kv-empty" }], roleAssignments };
  const company = { ...acme, subscriptions: [...acme.subscriptions, many, empty] };
  const live = await liveIn({ company });
  ({ cloud } = live);
  const services = { config: live.config, identity: createIdentity(live.config), log, limits: IMPATIENT };
  source = createAzureEdges({
    config: live.config,
    clock: { now: () => new Date(cloud.control.now()) },
    arm: createArm(services),
    appConfiguration: createAppConfigurationReferences(services),
    resourceManager: createResourceManager(services),
    watched: async () => ({ all: true, named: [] }),
    ownObjectId: async () => own,
  });
});
afterAll(() => cloud?.stop());
beforeEach(() => cloud.control.resetCounts());
afterEach(() => {
  cloud.control.clearFaults();
  cloud.control.allowOnly(undefined);
});

const subscription = (name: string) => cloud.control.subscriptions().find((one) => one.name === name)!.id;
const idOf = (name: string) => cloud.control.consumers.idOf(name);
const now = () => new Date(cloud.control.now());

interface Reading {
  resources: Extract<ReadingItem, { resource: unknown }>[];
  notSeen: NotSeen[];
  gone: string[];
}
async function reading(unit: string, since?: Date): Promise<Reading> {
  const found: Reading = { resources: [], notSeen: [], gone: [] };
  for await (const one of source.read(unit, { since })) {
    if ("notSeen" in one) found.notSeen.push(one.notSeen);
    else if ("gone" in one) found.gone.push(one.gone);
    else if ("resource" in one) found.resources.push(one);
  }
  return found;
}
/** Reads sites from a position on, new ones and earlier ones, and stops after some positions. */
async function part(unit: string, after?: string, most = Number.POSITIVE_INFINITY) {
  const found = {
    sites: [] as string[],
    earlier: [] as string[],
    place: after,
    failure: undefined as string | undefined,
  };
  const stop = new AbortController();
  let places = 0;
  const read = async () => {
    for await (const one of source.read(unit, { after, signal: stop.signal })) {
      if ("resource" in one && one.resource.kind !== "principal") found.sites.push(one.resource.id);
      if ("earlier" in one) found.earlier.push(one.earlier);
      if (!("place" in one)) continue;
      found.place = one.place;
      if (++places === most) stop.abort();
    }
  };
  if (most === Number.POSITIVE_INFINITY) await read();
  else found.failure = (await failureOf(read())).code;
  return found;
}

/** Formats a dependency in one line: its asset, its evidence and its refresh. */
const line = ({ vaultName, type, name, strength, evidence, pinned, refresh, state }: Edge): string => {
  const asset = `${vaultName} ${type ?? "*"} ${name === undefined ? "*" : "one"}`;
  const rest = `${refresh.how} ${refresh.slowestSeconds ?? "-"}${pinned ? " pinned" : ""}`;
  return `${asset} ${strength} ${evidence} ${rest}${state ? ` ${state.status}` : ""}`;
};
/** Returns everything reported for the resources with these names, by kind and name. */
function reported({ resources }: Reading, ...kinds: string[]): Record<string, string[]> {
  const chosen = resources.filter(({ resource }) => kinds.includes(resource.kind));
  expect(new Set(chosen.map(({ resource }) => resource.id)).size).toBe(chosen.length);
  return Object.fromEntries(chosen.map(({ resource, edges }) => [resource.name, edges.map(line).sort()]));
}

describe("the platform's subscription", () => {
  let platform: Reading;
  beforeAll(async () => {
    platform = await reading(subscription("Acme Platform"));
  });

  const DAY = 86_400;
  test.each<[kind: string, expected: Record<string, string[]>]>([
    [
      "applicationGateway",
      {
        "agw-edge": [
          "kv-platform-edge secret one references sslCertificates/bound willBreak - pinned",
          "kv-platform-edge secret one references sslCertificates/followed automatic 14400",
        ],
        "agw-uploaded": [],
      },
    ],
    [
      "frontDoor",
      {
        "afd-acme": [
          "kv-platform-edge secret one references secrets/partners willBreak - pinned",
          `kv-platform-edge secret one references secrets/shop automatic ${3 * DAY}`,
        ],
        "cdn-classic": [],
      },
    ],
    [
      "dataFactory",
      {
        "adf-acme": [
          "kv-platform-telemetry * * references linkedservices/of-each-run/password automatic 60",
          "kv-platform-telemetry secret one references linkedservices/archive/connectionString willBreak - pinned",
          "kv-platform-telemetry secret one references linkedservices/warehouse/password automatic 60",
        ],
        "adf-empty": [],
      },
    ],
    [
      "logicApp",
      {
        "logic-release": [
          "kv-platform-ci * * references actions/Get_any automatic 60",
          "kv-platform-ci secret one references actions/Get_secret automatic 60",
        ],
        "logic-newsletter": [],
      },
    ],
    [
      "apiConnection",
      { "keyvault-ci": ["kv-platform-ci * * references vaultName automatic 60"], "servicebus-vault": [] },
    ],
    [
      "appConfiguration",
      {
        "appcs-acme": [
          "kv-platform-telemetry secret one references kv/shop:bound-key (prod) willBreak - pinned",
          "kv-platform-telemetry secret one references kv/shop:mail-key blind -",
        ],
        "appcs-plain": [],
      },
    ],
    [
      "appServiceCertificate",
      {
        "cert-www": [`kv-platform-edge secret one references keyVaultSecretName automatic ${DAY} Initialized`],
        "cert-uploaded": [],
      },
    ],
    [
      "containerAppsCertificate",
      {
        "cae-prod/shop": ["kv-platform-edge secret one references certificateKeyVaultProperties/keyVaultUrl blind -"],
        "cae-prod/uploaded": [],
      },
    ],
    [
      "storageAccount",
      {
        stacmebackup: [`kv-platform-backup key one references encryption.keyvaultproperties automatic ${DAY}`],
        stacmetapes: ["kv-platform-backup key one references encryption.keyvaultproperties willBreak - pinned"],
        stacmevault: [],
      },
    ],
    [
      "sqlServer",
      {
        "sql-acme": [`kv-platform-backup key one references encryptionProtector automatic ${DAY}`],
        "sql-reports": [],
      },
    ],
    [
      "diskEncryptionSet",
      {
        "des-backup": ["kv-platform-backup key one references activeKey automatic 3600"],
        "des-managed-hsm": [],
      },
    ],
    [
      "virtualMachine",
      {
        "vm-gateway": ["kv-platform-network secret one references osProfile.secrets/0 willBreak - pinned"],
        "vm-gateway/KeyVaultForLinux": [
          "kv-platform-network secret one references observedCertificates/0 automatic 3600",
        ],
        "vm-gateway/OMSAgent": [],
        "vm-build": [],
      },
    ],
    [
      "machineLearning",
      { "mlw-forecast": ["kv-platform-telemetry * * references keyVault blind -"], "mlw-vaultless": [] },
    ],
  ])("of %s what uses a vault is found and what only looks so is not", (kind, expected) => {
    expect(reported(platform, kind)).toEqual(expected);
  });

  test("a cluster's key is found, and what its pods may mount", () => {
    expect(reported(platform, "kubernetesCluster")).toMatchObject({
      "aks-main": expect.arrayContaining(["kv-platform-aks key one references azureKeyVaultKms willBreak - pinned"]),
      "aks-lab": [],
    });
  });

  test("the service's own vault is left out, and a reference to a vault behind a firewall is unresolved", () => {
    expect(reported(platform, "webApp", "functionApp")).toEqual({
      "app-dmz-status": ["kv-dmz secret one references appsettings/TOKEN action 86400 AccessToKeyVaultDenied"],
      "func-lifecycle": [],
    });
    const vaults = platform.resources.flatMap(({ edges }) => edges.map(({ vaultName }) => vaultName));
    expect(vaults).not.toContain("kv-lifecycle-service");
  });

  test("a data factory without permission is a coverage item with a remedy, and hides nothing else", () => {
    expect(platform.notSeen).toEqual([
      {
        scope: idOf("adf-sealed"),
        code: "accessDenied",
        message: expect.stringContaining("adf-sealed"),
        remedy: expect.stringContaining("Credential Lifecycle Dependency Reader"),
      },
    ]);
  });
});

describe("the production subscription", () => {
  let production: Reading;
  beforeAll(async () => {
    production = await reading(subscription("Acme Production"));
  });

  test("sites and slots: versionless and pinned references in every spelling, connection strings, states", () => {
    const sites = reported(production, "webApp", "functionApp");
    expect(sites["app-catalog"]).toEqual([
      "kv-catalog-prod secret one references appsettings/API_CLIENT_SECRET action 86400 Resolved",
      "kv-catalog-prod secret one references appsettings/PARTNER_KEY willBreak - pinned Resolved",
    ]);
    expect(sites["app-catalog/staging"]).toEqual([
      "kv-catalog-prod secret one references appsettings/API_CLIENT_SECRET action 86400 Resolved",
    ]);
    expect(sites["app-identity"]).toContain(
      "kv-identity-prod secret one references connectionstrings/Main automatic 86400 Resolved",
    );
    const states = Object.entries(sites).flatMap(([name, [first = ""]]) =>
      /^app-(crm-|intranet)/.test(name) ? [`${name} ${first.split(" ").at(-1)}`] : [],
    );
    expect(states.sort()).toEqual([
      "app-crm-classic SecretNotFound",
      "app-crm-import SecretVersionNotFound",
      "app-crm-kiosk MSINotEnabled",
      "app-crm-reports AccessToKeyVaultDenied",
      "app-intranet VaultNotFound",
    ]);
    for (const decoy of ["app-brochure", "app-flags", "func-cleanup", "app-payments-legacy"]) {
      expect(sites[decoy], decoy).toEqual([]);
    }
  });

  test("the version that App Service has is reported with the state", () => {
    const [edge] = production.resources.find(({ resource }) => resource.name === "app-orders")!.edges;
    const kept = cloud.control.items("kv-orders-prod", "secrets").find(({ name }) => name === edge?.name);
    expect(edge?.state).toEqual({ resolved: true, status: "Resolved", version: kept?.version });
  });

  test("container apps, jobs and API Management", () => {
    const secret = "kv-payments-prod secret one references";
    expect(reported(production, "containerApp", "containerAppJob", "apiManagement")).toEqual({
      "ca-checkout": [`${secret} secrets/client-secret automatic 1800`],
      "ca-refunds": [`${secret} secrets/client-secret automatic 1800`],
      "ca-disputes": [`${secret} secrets/client-secret willBreak - pinned`],
      "job-settlement": [`${secret} secrets/client-secret blind -`],
      "ca-static": [],
      "apim-acme": [`${secret} namedValues/payments-client-secret action 14400 Success`],
    });
  });

  test("tags determine the environment of a resource", () => {
    const of = (name: string) => production.resources.find(({ resource }) => resource.name === name)!.resource;
    expect(of("app-payments")).toMatchObject({
      kind: "webApp",
      environment: "prod",
      managedBy: "terraform",
      subscriptionId: subscription("Acme Production"),
    });
    expect(of("func-payments-importer")).toMatchObject({ kind: "functionApp", environment: "production" });
    expect(of("app-orders").managedBy).toBeUndefined();
    expect(of("app-brochure").environment).toBeUndefined();
  });

  test("who may read: roles at the vault, access policies; not who reads metadata only", () => {
    const principals = production.resources.filter(({ resource }) => resource.kind === "principal");
    const payments = principals.filter(({ resource }) => resource.name.startsWith("Group"));
    expect(payments.map(({ edges }) => edges.map(line))).toEqual([
      [
        "kv-payments-prod certificate * entitled Key Vault Secrets Officer blind -",
        "kv-payments-prod secret * entitled Key Vault Secrets Officer blind -",
      ],
    ]);
    const roles = principals.flatMap(({ edges }) => edges.map(({ evidence }) => evidence));
    expect([...new Set(roles)].sort()).toEqual([
      "Key Vault Secrets Officer",
      "Key Vault Secrets User",
      "access policy",
    ]);
  });

  test("a site without permission and a site with an invalid reference are reported, without the value of the setting", () => {
    expect(production.notSeen.map(({ scope, code }) => [scope, code]).sort()).toEqual([
      [idOf("app-crm-export"), "invalidReference"],
      [idOf("app-crm-sealed"), "accessDenied"],
    ]);
    expect(production.notSeen.find(({ code }) => code === "accessDenied")?.remedy).toContain(
      "Credential Lifecycle Dependency Reader",
    );
    expect(JSON.stringify(production.notSeen)).not.toContain("/secret/");
  });
});

test("a subscription that is denied is not taken for an empty one", async () => {
  const failure = await failureOf(reading(subscription("Acme Finance")));
  expect(failure.code).toBe("accessDenied");
  expect(failure.remedy).toContain("Credential Lifecycle Inventory Reader");
  expect(await failureOf(reading(subscription("Acme Finance"), now()))).toMatchObject({ code: "accessDenied" });
});

test("whatever the identity may not read, the remedy names the custom role and the template that gives it", async () => {
  const units = ["Acme Production", "Acme Platform"].map(subscription);
  for (const unit of units) await reading(unit);
  const operations = Object.keys(cloud.control.counts()).filter((operation) => operation.startsWith("arm."));
  expect(operations).toEqual(
    expect.arrayContaining([
      "arm.queryResourceGraph",
      "arm.listReferences",
      "arm.listRoleAssignments",
      "arm.listVaults",
    ]),
  );
  const reported = new Map<string, string[]>();
  for (const operation of operations) {
    const fault = cloud.control.addFault({ match: { operation }, action: { kind: "deny" } });
    const denied: { code: string; remedy: string }[] = [];
    for (const unit of units)
      await reading(unit).then(
        ({ notSeen }) => denied.push(...notSeen),
        (failure) => denied.push(failure),
      );
    cloud.control.removeFault(fault);
    const remedies = denied.filter(({ code }) => code === "accessDenied").map(({ remedy }) => remedy);
    reported.set(operation, [...new Set(remedies)]);
  }
  const wrong = [...reported].filter(
    ([, remedies]) =>
      remedies.length === 0 ||
      remedies.some(
        (remedy) =>
          !/the custom role Credential Lifecycle (?:Inventory|Dependency) Reader on the subscription/.test(remedy) ||
          !remedy.includes("infra/azure/watch/subscription.bicep"),
      ),
  );
  expect(wrong).toEqual([]);
});

describe(`a subscription with ${SITES} sites`, () => {
  test("costs two calls a site and five more, and two when nothing changed", async () => {
    const all = await reading(MANY);
    expect(all.resources.filter(({ resource }) => resource.kind !== "principal")).toHaveLength(SITES);
    expect(all.notSeen).toEqual([]);
    const { "arm.listReferences": references, "arm.getRoleDefinition": definitions = 0 } = cloud.control.counts();
    const calls = armCalls();
    expect(references).toBe(2 * SITES);
    expect(calls - references! - definitions).toBeLessThanOrEqual(6);
    cloud.control.resetCounts();
    expect(await reading(MANY, now())).toEqual({ resources: [], notSeen: [], gone: [] });
    expect(armCalls()).toBe(2);
  });

  test("an incremental run reports only changed, created and deleted resources", async () => {
    const before = new Date(cloud.control.now());
    cloud.control.moveClock(60_000);
    const { consumers } = cloud.control;
    const settings = { A: "@Microsoft.KeyVault(VaultName=kv-many;SecretName=a)" };
    const made = consumers.put(MANY, { type: "Microsoft.Web/sites", name: "app-made", settings });
    const other = consumers.put(MANY, { type: "Microsoft.Web/sites", name: "app-short", settings });
    consumers.remove(other);
    const changed = await reading(MANY, before);
    expect(changed.resources.map(({ resource, edges }) => [resource.id, edges.map(line)])).toEqual([
      [made, ["kv-many secret one references appsettings/A action 86400 MSINotEnabled"]],
    ]);
    expect(changed.gone).toEqual([other]);
    cloud.control.moveClock(60_000);
    expect(await reading(MANY, now())).toEqual({ resources: [], notSeen: [], gone: [] });
    consumers.remove(made);
  });

  test("a run that ran out of time continues, and reads no site twice", async () => {
    const first = await part(MANY, undefined, 120);
    expect(first.failure).toBe("timedOut");
    // Sites that are read concurrently may already have been read.
    expect(first.sites.length).toBeGreaterThanOrEqual(120);
    expect(first.sites.length).toBeLessThan(130);
    cloud.control.resetCounts();
    const rest = await part(MANY, first.place);
    expect(rest.earlier).toEqual(first.sites);
    expect(new Set([...rest.earlier, ...rest.sites]).size).toBe(SITES);
    expect(rest.sites).toHaveLength(SITES - first.sites.length);
    // Beside what the first part still had on its way.
    expect(cloud.control.counts()["arm.listReferences"]).toBeLessThanOrEqual(2 * (SITES - 120) + 16);
  });

  test("a caller that has no more time ends the reading", async () => {
    const signal = AbortSignal.abort();
    const read = async () => {
      for await (const _ of source.read(MANY, { signal })) expect.unreachable();
    };
    expect((await failureOf(read())).code).toBe("timedOut");
  });
});

describe("a subscription of ten sites", () => {
  const unit = () => subscription("Acme Non-Production");
  const sitesIn = ({ resources }: Reading) => resources.filter(({ resource }) => resource.kind === "webApp");

  test("everything is read if the changes are no longer available", async () => {
    expect(sitesIn(await reading(unit(), new Date(now().getTime() - 8 * 86_400_000)))).toHaveLength(10);
  });

  test("all sites are read again if the last one that was read was deleted", async () => {
    const one = await part(unit());
    const again = await part(unit(), `0 ${one.sites[3]}-that-was-deleted`);
    expect([again.sites, again.earlier.length > 0]).toEqual([one.sites, true]);
    const last = await part(unit(), one.place);
    expect(last.sites).toEqual([]);
    expect(last.earlier).toEqual(expect.arrayContaining(one.sites));
  });

  test("a site that does not answer is named, and a reading of changes is not over with it", async () => {
    const [mute, before] = [idOf("app-web-test"), now()];
    cloud.control.addFault({ match: { resource: mute }, action: { kind: "fail", status: 500 } });
    const all = await reading(unit());
    expect(sitesIn(all)).toHaveLength(9);
    expect(all.notSeen).toMatchObject([{ scope: mute, code: "unreachable" }]);
    cloud.control.moveClock(60_000);
    cloud.control.consumers.change(mute, { tags: { env: "test", changed: "yes" } });
    expect(await failureOf(reading(unit(), before))).toMatchObject({ code: "unreachable" });
    cloud.control.clearFaults();
    expect(sitesIn(await reading(unit(), before)).map(({ resource }) => resource.id)).toEqual([mute]);
  });
});

test("with the roles that the templates give, all but App Configuration's key-values is seen", async () => {
  const { bicep } = await parseTemplates(readInfraFiles());
  const unit = subscription("Acme Platform");
  const watched = grantsOf(bicep).filter(({ scope }) => scope === "watched");
  cloud.control.allowOnly(watched.map((grant) => ({ ...grant, scope: `/subscriptions/${unit}` })));
  const { resources, notSeen } = await reading(unit);
  expect(notSeen.map(({ scope }) => scope.split("/").at(-1)).sort()).toEqual([
    "adf-sealed",
    "appcs-acme",
    "appcs-plain",
  ]);
  expect(notSeen.at(-1)?.remedy).toContain("App Configuration Data Reader");
  const kinds = new Set(resources.map(({ resource }) => resource.kind));
  expect([...kinds].sort()).toEqual([
    "apiConnection",
    "appServiceCertificate",
    "applicationGateway",
    "containerAppsCertificate",
    "dataFactory",
    "diskEncryptionSet",
    "frontDoor",
    "functionApp",
    "kubernetesCluster",
    "logicApp",
    "machineLearning",
    "principal",
    "sqlServer",
    "storageAccount",
    "virtualMachine",
    "webApp",
  ]);
});

test("an identity that may list the vaults and nothing else does not take a subscription for empty", async () => {
  const unit = subscription("Acme Platform");
  const actions = ["Microsoft.KeyVault/vaults/read"];
  cloud.control.allowOnly([{ scope: `/subscriptions/${unit}`, actions, dataActions: [] }]);
  expect(await failureOf(reading(unit))).toMatchObject({ code: "accessDenied" });
});

test("with the roles of a scan alone, which may list role assignments, an empty answer is no empty subscription", async () => {
  const { bicep } = await parseTemplates(readInfraFiles());
  const unit = subscription("Acme Platform");
  const own = grantsOf(bicep).filter(({ principal }) => principal === "{identity.principal_id}");
  const scans = own.filter(({ scope, role }) => scope === "watched" && !/^dependency/.test(role));
  expect(scans.map(({ role }) => role)).toContain("Key Vault Reader");
  cloud.control.allowOnly(scans.map((grant) => ({ ...grant, scope: `/subscriptions/${unit}` })));
  const { notSeen, gone } = await reading(unit);
  expect(notSeen).toMatchObject([{ scope: `/subscriptions/${unit}`, code: "nothingListed" }]);
  expect(notSeen[0]!.remedy).toContain("Credential Lifecycle Dependency Reader");
  expect(gone).toEqual([]);
});

test("a subscription without any such resource is empty where a role of the identity shows it, and else may be", async () => {
  const all = await reading(EMPTY);
  expect(all.notSeen).toMatchObject([{ scope: `/subscriptions/${EMPTY}`, code: "nothingListed" }]);
  own = guidFrom("principal reads-all");
  expect((await reading(EMPTY)).notSeen).toEqual([]);
  own = undefined;
});

test("without configured subscriptions all that the identity may see are units", async () => {
  const units = await source.units();
  expect(units).toContain(MANY);
  expect(units).toContain(subscription("Acme Production"));
});

test("no value of a setting is requested, reported or logged", () => {
  const asked = cloud.control.requests().map(({ operation }) => operation);
  expect(asked).not.toContain("arm.listSettings");
  const secret = cloud.control.secretValue("kv-payments-prod", "payments-api-client-secret")!;
  expect(log.lines.join("\n")).not.toContain(secret);
});

/** Calls of the resource manager alone. */
function armCalls(): number {
  return Object.entries(cloud.control.counts()).reduce(
    (sum, [name, count]) => sum + (name.startsWith("arm.") ? count : 0),
    0,
  );
}
