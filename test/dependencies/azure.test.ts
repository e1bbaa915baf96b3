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
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { expectFailure, recordingLog, SHORT_WAITS } from "../azure/services.ts";

/**
 * Tests of dependency discovery in Azure against the simulated cloud. The source reads one unit (a subscription) at a time. It
 * reports each resource with its edges (the vault objects that the resource uses), each resource that is gone, and each scope
 * that could not be read (`notSeen`). The company "acme" has a resource of every supported kind, and decoys that use no vault.
 */

/** Subscriptions beside those of acme: one with many sites, and one without resources that could use a vault. */
const MANY_SITES = "44444444-4444-4444-8444-444444444444";
const EMPTY = "55555555-4444-4444-8444-444444444444";
const SITES = 200;

let cloud: Cloud;
let source: EdgeSource;
/** The object id of the service's own principal. Undefined if the service does not know it. */
let ownObjectId: string | undefined;
const log = recordingLog();

beforeAll(async () => {
  const acme = acmeCompany(1);
  const many = { id: MANY_SITES, name: "Many", vaults: [{ name: "kv-many" }], generate: { sites: SITES } };
  const roleAssignments = [{ principal: "reads-all", principalType: "ServicePrincipal", role: "Reader" } as const];
  const empty = { id: EMPTY, name: "Empty", vaults: [{ name: "kv-empty" }], roleAssignments };
  const company = { ...acme, subscriptions: [...acme.subscriptions, many, empty] };
  const live = await startTestCloud({ company });
  ({ cloud } = live);
  const services = { config: live.config, identity: createIdentity(live.config), log, limits: SHORT_WAITS };
  source = createAzureEdges({
    config: live.config,
    clock: { now: () => new Date(cloud.control.now()) },
    arm: createArm(services),
    appConfiguration: createAppConfigurationReferences(services),
    resourceManager: createResourceManager(services),
    watched: async () => ({ all: true, named: [] }),
    ownObjectId: async () => ownObjectId,
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

/** Everything that one read of a subscription reports. */
interface Reading {
  resources: Extract<ReadingItem, { resource: unknown }>[];
  notSeen: NotSeen[];
  gone: string[];
}
/** Reads a subscription, or only its changes since a time. */
async function readUnit(unit: string, since?: Date): Promise<Reading> {
  const reading: Reading = { resources: [], notSeen: [], gone: [] };
  for await (const item of source.read(unit, { since })) {
    if ("notSeen" in item) reading.notSeen.push(item.notSeen);
    else if ("gone" in item) reading.gone.push(item.gone);
    else if ("resource" in item) reading.resources.push(item);
  }
  return reading;
}
/**
 * Reads a subscription from a position on and aborts after `maxPositions` positions. A position is a point between two
 * resources from which a later read can continue. Returns the sites that were read, and those that an earlier read had read
 * before the position.
 */
async function readPart(unit: string, after?: string, maxPositions = Number.POSITIVE_INFINITY) {
  const part = {
    sites: [] as string[],
    earlier: [] as string[],
    position: after,
    failure: undefined as string | undefined,
  };
  const stop = new AbortController();
  let positions = 0;
  const read = async () => {
    for await (const item of source.read(unit, { after, signal: stop.signal })) {
      if ("resource" in item && item.resource.kind !== "principal") part.sites.push(item.resource.id);
      if ("earlier" in item) part.earlier.push(item.earlier);
      if (!("position" in item)) continue;
      part.position = item.position;
      if (++positions === maxPositions) stop.abort();
    }
  };
  if (maxPositions === Number.POSITIVE_INFINITY) await read();
  else part.failure = (await expectFailure(read())).code;
  return part;
}

/**
 * Formats an edge as "vault type name strength evidence refresh slowestSeconds", followed by "pinned" if it names a version,
 * and by the status of its reference. `one` stands for the name of an asset, `*` for all types or names.
 */
const formatEdge = ({ vaultName, type, name, strength, evidence, pinned, refresh, state }: Edge): string => {
  const asset = `${vaultName} ${type ?? "*"} ${name === undefined ? "*" : "one"}`;
  const refreshText = `${refresh.how} ${refresh.slowestSeconds ?? "-"}${pinned ? " pinned" : ""}`;
  return `${asset} ${strength} ${evidence} ${refreshText}${state ? ` ${state.status}` : ""}`;
};
/** Returns the formatted edges of all resources of these kinds, by the name of the resource. */
function edgesByResource({ resources }: Reading, ...kinds: string[]): Record<string, string[]> {
  const chosen = resources.filter(({ resource }) => kinds.includes(resource.kind));
  expect(new Set(chosen.map(({ resource }) => resource.id)).size).toBe(chosen.length);
  return Object.fromEntries(chosen.map(({ resource, edges }) => [resource.name, edges.map(formatEdge).sort()]));
}

describe("the subscription of the platform team", () => {
  let platform: Reading;
  beforeAll(async () => {
    platform = await readUnit(subscription("Acme Platform"));
  });

  const DAY_SECONDS = 86_400;
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
          `kv-platform-edge secret one references secrets/shop automatic ${3 * DAY_SECONDS}`,
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
        "cert-www": [`kv-platform-edge secret one references keyVaultSecretName automatic ${DAY_SECONDS} Initialized`],
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
        stacmebackup: [`kv-platform-backup key one references encryption.keyvaultproperties automatic ${DAY_SECONDS}`],
        stacmetapes: ["kv-platform-backup key one references encryption.keyvaultproperties willBreak - pinned"],
        stacmevault: [],
      },
    ],
    [
      "sqlServer",
      {
        "sql-acme": [`kv-platform-backup key one references encryptionProtector automatic ${DAY_SECONDS}`],
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
  ])("the edges of each resource of kind %s are found, and decoys have none", (kind, expected) => {
    expect(edgesByResource(platform, kind)).toEqual(expected);
  });

  test("the encryption key of a Kubernetes cluster is found", () => {
    expect(edgesByResource(platform, "kubernetesCluster")).toMatchObject({
      "aks-main": expect.arrayContaining(["kv-platform-aks key one references azureKeyVaultKms willBreak - pinned"]),
      "aks-lab": [],
    });
  });

  test("a reference to the service's own vault is reported, but not the identities that may read that vault", () => {
    expect(edgesByResource(platform, "webApp", "functionApp")).toEqual({
      "app-dmz-status": ["kv-dmz secret one references appsettings/TOKEN action 86400 AccessToKeyVaultDenied"],
      "func-lifecycle": ["kv-lifecycle-service secret one references appsettings/JWT_KEYS action 86400 SecretNotFound"],
    });
    const ofServiceVault = platform.resources.flatMap(({ edges }) =>
      edges.filter(({ vaultName }) => vaultName === "kv-lifecycle-service"),
    );
    expect(ofServiceVault.map(({ strength }) => strength)).toEqual(["references"]);
  });

  test("only the data factory that can't be read is reported as not seen, with a remedy", () => {
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
    production = await readUnit(subscription("Acme Production"));
  });

  test("references of sites and slots are found with their status, in settings and connection strings", () => {
    const sites = edgesByResource(production, "webApp", "functionApp");
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

  test("the secret version that App Service has resolved is reported", () => {
    const [edge] = production.resources.find(({ resource }) => resource.name === "app-orders")!.edges;
    const secret = cloud.control.items("kv-orders-prod", "secrets").find(({ name }) => name === edge?.name);
    expect(edge?.state).toEqual({ resolved: true, status: "Resolved", version: secret?.version });
  });

  test("references of container apps, jobs and API Management are found", () => {
    const secret = "kv-payments-prod secret one references";
    expect(edgesByResource(production, "containerApp", "containerAppJob", "apiManagement")).toEqual({
      "ca-checkout": [`${secret} secrets/client-secret automatic 1800`],
      "ca-refunds": [`${secret} secrets/client-secret automatic 1800`],
      "ca-disputes": [`${secret} secrets/client-secret willBreak - pinned`],
      "job-settlement": [`${secret} secrets/client-secret blind -`],
      "ca-static": [],
      "apim-acme": [`${secret} namedValues/payments-client-secret action 14400 Success`],
    });
  });

  test("tags determine the environment and the tool that manages a resource", () => {
    const resourceNamed = (name: string) =>
      production.resources.find(({ resource }) => resource.name === name)!.resource;
    expect(resourceNamed("app-payments")).toMatchObject({
      kind: "webApp",
      environment: "prod",
      managedBy: "terraform",
      subscriptionId: subscription("Acme Production"),
    });
    expect(resourceNamed("func-payments-importer")).toMatchObject({ kind: "functionApp", environment: "production" });
    expect(resourceNamed("app-orders").managedBy).toBeUndefined();
    expect(resourceNamed("app-brochure").environment).toBeUndefined();
  });

  test("principals that may read values by role or access policy are reported, but not readers of metadata", () => {
    const principals = production.resources.filter(({ resource }) => resource.kind === "principal");
    const payments = principals.filter(({ resource }) => resource.name.startsWith("Group"));
    expect(payments.map(({ edges }) => edges.map(formatEdge))).toEqual([
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

  test("a principal that is a managed identity has the name of its resource, or its own if it is shared", () => {
    const principals = production.resources.filter(({ resource }) => resource.kind === "principal");
    const principalOf = (id: string) => principals.find(({ resource }) => resource.id === `entra/${id}`)?.resource;
    const app = idOf("app-payments");
    expect(principalOf(guidFrom(`principal ${app.toLowerCase()}`))).toMatchObject({
      kind: "principal",
      name: "app-payments",
      identityOf: app,
    });
    const shared = principalOf(guidFrom("principal of identity id-importers"))!;
    expect([shared.name, shared.identityOf]).toEqual(["id-importers", undefined]);
    // For each found resource whose own identity may read a vault: name and resource of the identity, and the resource itself.
    const identities = production.resources.flatMap(({ resource }) => {
      const principal = principalOf(guidFrom(`principal ${resource.id.toLowerCase()}`));
      return principal ? [[principal.name, principal.identityOf, resource.name, resource.id]] : [];
    });
    expect(identities.length).toBeGreaterThan(10);
    expect(identities.filter(([name, identityOf, resource, id]) => name !== resource || identityOf !== id)).toEqual([]);
  });

  test("a site that can't be read and a site with an invalid reference are reported as not seen", () => {
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

test("a subscription without permissions fails the read instead of being empty", async () => {
  const failure = await expectFailure(readUnit(subscription("Acme Finance")));
  expect(failure.code).toBe("accessDenied");
  expect(failure.remedy).toContain("Credential Lifecycle Inventory Reader");
  expect(await expectFailure(readUnit(subscription("Acme Finance"), now()))).toMatchObject({ code: "accessDenied" });
});

test("for each denied operation, the remedy names the custom role and the template that assigns it", async () => {
  const units = ["Acme Production", "Acme Platform"].map(subscription);
  for (const unit of units) await readUnit(unit);
  const operations = Object.keys(cloud.control.counts()).filter((operation) => operation.startsWith("arm."));
  expect(operations).toEqual(
    expect.arrayContaining([
      "arm.queryResourceGraph",
      "arm.listReferences",
      "arm.listRoleAssignments",
      "arm.listVaults",
    ]),
  );
  const remediesByOperation = new Map<string, string[]>();
  for (const operation of operations) {
    const fault = cloud.control.addFault({ match: { operation }, action: { kind: "deny" } });
    const denied: { code: string; remedy: string }[] = [];
    for (const unit of units)
      await readUnit(unit).then(
        ({ notSeen }) => denied.push(...notSeen),
        (failure) => denied.push(failure),
      );
    cloud.control.removeFault(fault);
    const remedies = denied.filter(({ code }) => code === "accessDenied").map(({ remedy }) => remedy);
    remediesByOperation.set(operation, [...new Set(remedies)]);
  }
  const wrong = [...remediesByOperation].filter(
    ([, remedies]) =>
      remedies.length === 0 ||
      remedies.some(
        (remedy) =>
          !/the custom role Credential Lifecycle (?:Inventory|Dependency) Reader on the subscription/.test(remedy) ||
          !remedy.includes("the deployment template for monitored subscriptions creates and assigns it"),
      ),
  );
  expect(wrong).toEqual([]);
});

describe(`a subscription with ${SITES} sites`, () => {
  test("a full read costs two calls per site and at most seven others, a read without changes two in total", async () => {
    const all = await readUnit(MANY_SITES);
    expect(all.resources.filter(({ resource }) => resource.kind !== "principal")).toHaveLength(SITES);
    expect(all.notSeen).toEqual([]);
    const { "arm.listReferences": references, "arm.getRoleDefinition": definitions = 0 } = cloud.control.counts();
    const calls = armCalls();
    expect(references).toBe(2 * SITES);
    expect(calls - references! - definitions).toBeLessThanOrEqual(7);
    cloud.control.resetCounts();
    expect(await readUnit(MANY_SITES, now())).toEqual({ resources: [], notSeen: [], gone: [] });
    expect(armCalls()).toBe(2);
  });

  test("an incremental run reports only changed, created and deleted resources", async () => {
    const before = new Date(cloud.control.now());
    cloud.control.moveClock(MINUTE_MS);
    const { consumers } = cloud.control;
    const settings = { A: "@Microsoft.KeyVault(VaultName=kv-many;SecretName=a)" };
    const created = consumers.put(MANY_SITES, { type: "Microsoft.Web/sites", name: "app-made", settings });
    const deleted = consumers.put(MANY_SITES, { type: "Microsoft.Web/sites", name: "app-short", settings });
    consumers.remove(deleted);
    const changed = await readUnit(MANY_SITES, before);
    expect(changed.resources.map(({ resource, edges }) => [resource.id, edges.map(formatEdge)])).toEqual([
      [created, ["kv-many secret one references appsettings/A action 86400 MSINotEnabled"]],
    ]);
    expect(changed.gone).toEqual([deleted]);
    cloud.control.moveClock(MINUTE_MS);
    expect(await readUnit(MANY_SITES, now())).toEqual({ resources: [], notSeen: [], gone: [] });
    consumers.remove(created);
  });

  test("a read that ran out of time continues at its position and reports each site once", async () => {
    const first = await readPart(MANY_SITES, undefined, 120);
    expect(first.failure).toBe("timedOut");
    // The source reads several sites at once, so some more may be reported before the abort takes effect.
    expect(first.sites.length).toBeGreaterThanOrEqual(120);
    expect(first.sites.length).toBeLessThan(130);
    cloud.control.resetCounts();
    const second = await readPart(MANY_SITES, first.position);
    expect(second.earlier).toEqual(first.sites);
    expect(new Set([...second.earlier, ...second.sites]).size).toBe(SITES);
    expect(second.sites).toHaveLength(SITES - first.sites.length);
    // Up to eight sites that the aborted read was reading are read a second time.
    expect(cloud.control.counts()["arm.listReferences"]).toBeLessThanOrEqual(2 * (SITES - 120) + 16);
  });

  test("an aborted signal ends the read", async () => {
    const signal = AbortSignal.abort();
    const read = async () => {
      for await (const _ of source.read(MANY_SITES, { signal })) expect.unreachable();
    };
    expect((await expectFailure(read())).code).toBe("timedOut");
  });
});

describe("a subscription of ten sites", () => {
  const unit = () => subscription("Acme Non-Production");
  const sitesIn = ({ resources }: Reading) => resources.filter(({ resource }) => resource.kind === "webApp");

  test("everything is read if the changes since a time are no longer available", async () => {
    // The service relies on the changes of the last six days only.
    expect(sitesIn(await readUnit(unit(), new Date(now().getTime() - 8 * 86_400_000)))).toHaveLength(10);
  });

  test("all sites are read again if the last one that was read was deleted", async () => {
    const first = await readPart(unit());
    // A position is the index of a query (0: resources without properties) and the id of its last resource that was read.
    const afterDeleted = await readPart(unit(), `0 ${first.sites[3]}-that-was-deleted`);
    expect([afterDeleted.sites, afterDeleted.earlier.length > 0]).toEqual([first.sites, true]);
    const afterLast = await readPart(unit(), first.position);
    expect(afterLast.sites).toEqual([]);
    expect(afterLast.earlier).toEqual(expect.arrayContaining(first.sites));
  });

  test("a site that fails is reported as not seen, but fails a read of changes", async () => {
    const [failingSite, before] = [idOf("app-web-test"), now()];
    cloud.control.addFault({ match: { resource: failingSite }, action: { kind: "fail", status: 500 } });
    const all = await readUnit(unit());
    expect(sitesIn(all)).toHaveLength(9);
    expect(all.notSeen).toMatchObject([{ scope: failingSite, code: "unreachable" }]);
    cloud.control.moveClock(MINUTE_MS);
    cloud.control.consumers.change(failingSite, { tags: { env: "test", changed: "yes" } });
    expect(await expectFailure(readUnit(unit(), before))).toMatchObject({ code: "unreachable" });
    cloud.control.clearFaults();
    expect(sitesIn(await readUnit(unit(), before)).map(({ resource }) => resource.id)).toEqual([failingSite]);
  });
});

test("with the roles of the templates, everything but the key-values of App Configuration can be read", async () => {
  const { bicep } = await parseTemplates(readInfraFiles());
  const unit = subscription("Acme Platform");
  const watched = grantsOf(bicep).filter(({ scope }) => scope === "watched");
  cloud.control.allowOnly(watched.map((grant) => ({ ...grant, scope: `/subscriptions/${unit}` })));
  const { resources, notSeen } = await readUnit(unit);
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

test("an identity that may only list vaults fails the read instead of finding nothing", async () => {
  const unit = subscription("Acme Platform");
  const actions = ["Microsoft.KeyVault/vaults/read"];
  cloud.control.allowOnly([{ scope: `/subscriptions/${unit}`, actions, dataActions: [] }]);
  expect(await expectFailure(readUnit(unit))).toMatchObject({ code: "accessDenied" });
});

test("with the roles for scans only, an empty result is reported as not seen", async () => {
  const { bicep } = await parseTemplates(readInfraFiles());
  const unit = subscription("Acme Platform");
  const serviceGrants = grantsOf(bicep).filter(({ principal }) => principal === "{identity.principal_id}");
  const scanGrants = serviceGrants.filter(({ scope, role }) => scope === "watched" && !/^dependency/.test(role));
  expect(scanGrants.map(({ role }) => role)).toContain("Key Vault Reader");
  cloud.control.allowOnly(scanGrants.map((grant) => ({ ...grant, scope: `/subscriptions/${unit}` })));
  const { notSeen, gone } = await readUnit(unit);
  expect(notSeen).toMatchObject([{ scope: `/subscriptions/${unit}`, code: "nothingListed" }]);
  expect(notSeen[0]!.remedy).toContain("Credential Lifecycle Dependency Reader");
  expect(gone).toEqual([]);
});

test("an empty result is reported as not seen unless the identity has a role that shows all resources", async () => {
  const all = await readUnit(EMPTY);
  expect(all.notSeen).toMatchObject([{ scope: `/subscriptions/${EMPTY}`, code: "nothingListed" }]);
  ownObjectId = guidFrom("principal reads-all");
  expect((await readUnit(EMPTY)).notSeen).toEqual([]);
  ownObjectId = undefined;
});

test("without configured subscriptions, the units are all subscriptions that the identity can see", async () => {
  const units = await source.units();
  expect(units).toContain(MANY_SITES);
  expect(units).toContain(subscription("Acme Production"));
});

test("setting values are not requested, and no secret value is logged", () => {
  const requested = cloud.control.requests().map(({ operation }) => operation);
  expect(requested).not.toContain("arm.listSettings");
  const secret = cloud.control.secretValue("kv-payments-prod", "payments-api-client-secret")!;
  expect(log.lines.join("\n")).not.toContain(secret);
});

/** Returns the number of calls of the resource manager. */
function armCalls(): number {
  return Object.entries(cloud.control.counts()).reduce(
    (sum, [name, count]) => sum + (name.startsWith("arm.") ? count : 0),
    0,
  );
}
