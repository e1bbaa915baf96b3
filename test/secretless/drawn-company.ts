import { appIdOf, type CompanyApplication, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { CompanyConnection, CompanyVariableGroup } from "simulated-cloud/company/devops.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import type { CompanyResource } from "simulated-cloud/company/resources.ts";

// A drawn company of 60 applications. For each application the right report is known from how its consumers were drawn.

/** What the report must say of one consumer: its kind, its replacement and its blockers. */
export type ExpectedConsumer = [kind: string, replacement: string, mode: string | null, blockers: string[]];

export interface Expected {
  name: string;
  scenario: string;
  verdict: "possible" | "partly" | "blocked" | "unknown";
  consumers: ExpectedConsumer[];
  /** Subjects that the report must propose, by kind of consumer. */
  subjects: Record<string, string>;
}

export interface SyncRequest {
  sourceVault: string;
  sourceSecret: string;
  targetProvider: string;
  targetService: string;
  targetRegion: string | null;
  targetName: string;
}

interface Drawn extends Expected {
  application: CompanyApplication;
  resources: CompanyResource[];
  connections: CompanyConnection[];
  groups: CompanyVariableGroup[];
  records: SyncRequest[];
  /** Whether a vault secret stores the client secret. */
  stored: boolean;
  /** Vault of that secret. */
  vault: string;
}

const VAULT = "kv-apps";
const COPIES = "kv-copies";
const MANAGED = "<principal ID of the managed identity>";
const DEVOPS_SUBJECT = "<subject that Azure DevOps shows>";
const WORKFLOW_SUBJECT = "<subject of the token of the workflow>";

const trusted = (kind: string): ExpectedConsumer => [kind, "managedIdentity", "trusted", []];
const federated = (kind: string): ExpectedConsumer => [kind, "federatedCredential", null, []];
const referenceTo = (vault: string, secret: string) => `@Microsoft.KeyVault(VaultName=${vault};SecretName=${secret})`;
const system = { system: true };

const site = (name: string, kind: string, settings: Record<string, string>): CompanyResource => ({
  type: "Microsoft.Web/sites",
  name,
  kind,
  identity: system,
  properties: { state: "Running", enabled: true, keyVaultReferenceIdentity: "SystemAssigned" },
  settings,
});

const container = (name: string, type: string, secret: string): CompanyResource => ({
  type,
  name,
  identity: system,
  properties: {
    configuration: {
      secrets: [{ name: "client", keyVaultUrl: `{uri:${VAULT}}/secrets/${secret}`, identity: "system" }],
    },
    template: { containers: [{ name: "main", image: "shop:1", env: [{ name: "SECRET", secretRef: "client" }] }] },
  },
});

const federatedCredentials = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    name: `branch-${index}`,
    issuer: "https://token.actions.githubusercontent.com",
    subject: `repo:acme/shop:ref:refs/heads/${index}`,
  }));

/** How the consumers of an application are drawn, with the right answer. `name` is that of the application. */
const SCENARIOS: Record<string, (drawn: Drawn, short: string, dice: Dice) => void> = {
  webApp(drawn, short) {
    drawn.resources.push(site(`web-${short}`, "app", { CLIENT_SECRET: referenceTo(VAULT, short) }));
    expectAll(drawn, "possible", [trusted("webApp")], { webApp: MANAGED });
  },
  functionApp(drawn, short) {
    drawn.resources.push(site(`func-${short}`, "functionapp,linux", { CLIENT_SECRET: referenceTo(VAULT, short) }));
    expectAll(drawn, "possible", [trusted("functionApp")], { functionApp: MANAGED });
  },
  builtInAuthentication(drawn, short) {
    const settings = { MICROSOFT_PROVIDER_AUTHENTICATION_SECRET: referenceTo(VAULT, short) };
    drawn.resources.push(site(`auth-${short}`, "app", settings));
    expectAll(drawn, "possible", [trusted("webApp")], { webApp: MANAGED });
  },
  plaintextCopy(drawn, short) {
    drawn.resources.push(site(`copy-${short}`, "app", { CLIENT_SECRET: secretValueOf(drawn.name, "current") }));
    expectAll(drawn, "possible", [trusted("webApp")], { webApp: MANAGED });
  },
  containerApp(drawn, short) {
    drawn.resources.push(container(`ca-${short}`, "Microsoft.App/containerApps", short));
    expectAll(drawn, "possible", [trusted("containerApp")], { containerApp: MANAGED });
  },
  containerJob(drawn, short) {
    drawn.resources.push(container(`job-${short}`, "Microsoft.App/jobs", short));
    expectAll(drawn, "possible", [trusted("containerAppJob")], { containerAppJob: MANAGED });
  },
  apiManagement(drawn, short) {
    drawn.resources.push({
      type: "Microsoft.ApiManagement/service",
      name: `apim-${short}`,
      identity: system,
      children: {
        namedValues: [
          {
            name: "client",
            properties: {
              displayName: "client",
              secret: true,
              keyVault: { secretIdentifier: `{uri:${VAULT}}/secrets/${short}` },
            },
          },
        ],
      },
    });
    expectAll(drawn, "possible", [["apiManagement", "managedIdentity", "instead", []]], {});
  },
  cluster(drawn, short) {
    drawn.vault = `kv-${short}`;
    drawn.resources.push({
      type: "Microsoft.ContainerService/managedClusters",
      name: `aks-${short}`,
      identity: system,
      properties: {
        addonProfiles: {
          azureKeyvaultSecretsProvider: { enabled: true, identity: { objectId: `{principal:provider of ${short}}` } },
        },
      },
    });
    expectAll(drawn, "possible", [federated("kubernetesCluster")], {
      kubernetesCluster: "system:serviceaccount:<namespace>:<service account>",
    });
  },
  manualConnection(drawn, short) {
    drawn.stored = false;
    drawn.connections.push({ name: `manual-${short}`, application: drawn.name, secret: "current" });
    expectAll(drawn, "possible", [federated("devopsServiceConnection")], { devopsServiceConnection: DEVOPS_SUBJECT });
  },
  automaticConnection(drawn, short) {
    drawn.stored = false;
    const connection = { name: `automatic-${short}`, application: drawn.name, secret: "current" };
    drawn.connections.push({ ...connection, creationMode: "Automatic" });
    expectAll(drawn, "possible", [federated("devopsServiceConnection")], { devopsServiceConnection: DEVOPS_SUBJECT });
  },
  variableGroup(drawn, short) {
    drawn.groups.push({ name: `group-${short}`, vault: VAULT, variables: { [short]: { enabled: true } } });
    expectAll(drawn, "possible", [federated("devopsVariableGroup")], { devopsVariableGroup: DEVOPS_SUBJECT });
  },
  githubEnvironment(drawn, short) {
    drawn.records.push(recordOf(short, "github", "actions", null, `acme/shop/production/${upper(short)}`));
    expectAll(drawn, "possible", [federated("syncRecord")], { syncRecord: WORKFLOW_SUBJECT });
  },
  githubRepository(drawn, short) {
    drawn.records.push(recordOf(short, "github", "actions", null, `acme/old-shop/${upper(short)}`));
    expectAll(drawn, "possible", [federated("syncRecord")], { syncRecord: WORKFLOW_SUBJECT });
  },
  kubernetesCopy(drawn, short) {
    drawn.records.push(recordOf(short, "kubernetes", "secret", null, short));
    expectAll(drawn, "possible", [federated("syncRecord")], {
      syncRecord: "system:serviceaccount:<the cluster's namespace>:<service account>",
    });
  },
  amazonCopy(drawn, short) {
    drawn.records.push(recordOf(short, "aws", "secretsmanager", "eu-west-1", `copies/${short}`));
    expectAll(drawn, "blocked", [["syncRecord", "none", null, ["outsideAzure"]]], {});
  },
  copyInVault(drawn, short) {
    drawn.records.push(recordOf(short, "azure", "keyvault", COPIES, `copied-${short}`));
    drawn.resources.push(site(`reads-${short}`, "app", { CLIENT_SECRET: referenceTo(COPIES, `copied-${short}`) }));
    expectAll(drawn, "possible", [trusted("webApp")], { webApp: MANAGED });
  },
  mixed(drawn, short) {
    drawn.resources.push(site(`mixed-${short}`, "app", { CLIENT_SECRET: referenceTo(VAULT, short) }));
    drawn.records.push(recordOf(short, "aws", "secretsmanager", "eu-west-1", `copies/${short}`));
    expectAll(drawn, "partly", [["syncRecord", "none", null, ["outsideAzure"]], trusted("webApp")], {
      webApp: MANAGED,
    });
  },
  limitReached(drawn, short, dice) {
    drawn.application.federated = federatedCredentials(dice.oneIn(2) ? 20 : 19);
    const hasRoom = drawn.application.federated.length === 19;
    drawn.resources.push(site(`full-${short}`, "app", { CLIENT_SECRET: referenceTo(VAULT, short) }));
    drawn.connections.push({ name: `full-${short}`, application: drawn.name, secret: "current" });
    const blocked = ["federatedCredentialLimit"];
    // The resource ID of the site sorts before that of the connection, so the site gets the last free credential.
    expectAll(
      drawn,
      hasRoom ? "partly" : "blocked",
      [
        ["devopsServiceConnection", "none", null, blocked],
        hasRoom ? trusted("webApp") : ["webApp", "none", "trusted", blocked],
      ],
      hasRoom ? { webApp: MANAGED } : {},
    );
  },
  configurationStore(drawn, short) {
    drawn.resources.push({
      type: "Microsoft.AppConfiguration/configurationStores",
      name: `appcs-${short}`,
      sku: { name: "standard" },
      keyValues: [
        {
          key: "client",
          value: JSON.stringify({ uri: `{uri:${VAULT}}/secrets/${short}` }),
          contentType: "application/vnd.microsoft.appconfig.keyvaultref+json;charset=utf-8",
        },
      ],
    });
    expectAll(drawn, "unknown", [["appConfiguration", "unknown", null, ["unknownKind"]]], {});
  },
  nobody(drawn) {
    expectAll(drawn, "unknown", [], {});
  },
};

function expectAll(
  drawn: Drawn,
  verdict: Expected["verdict"],
  consumers: ExpectedConsumer[],
  subjects: Expected["subjects"],
): void {
  Object.assign(drawn, { verdict, consumers, subjects });
}

const upper = (short: string): string => short.replaceAll("-", "_").toUpperCase();
const recordOf = (
  secret: string,
  targetProvider: string,
  targetService: string,
  targetRegion: string | null,
  targetName: string,
): SyncRequest => ({
  sourceVault: VAULT,
  sourceSecret: secret,
  targetProvider,
  targetService,
  targetRegion,
  targetName,
});

/** Draws a company of 60 applications: each scenario three times, in random order. Or of `copies` of the given scenarios. */
export function drawCompany(
  seed: number,
  { names = Object.keys(SCENARIOS), copies = 3 }: { names?: readonly string[]; copies?: number } = {},
): { company: Company; expected: Expected[]; records: SyncRequest[] } {
  const dice = new Dice(seed);
  const scenarios = names.flatMap((scenario) => Array.from({ length: copies }, () => scenario));
  const order = scenarios.map((scenario) => ({ scenario, place: dice.next() })).sort((a, b) => a.place - b.place);
  const drawn = order.map(({ scenario }, index): Drawn => {
    const short = `app-${String(index).padStart(2, "0")}`;
    const name = `Program ${String.fromCharCode(65 + (index % 26))}${index}`;
    const one: Drawn = {
      name,
      scenario,
      verdict: "unknown",
      consumers: [],
      subjects: {},
      application: { name, secrets: [{ name: "current", expiresInDays: 40 + index * 3 }] },
      resources: [],
      connections: [],
      groups: [],
      records: [],
      stored: true,
      vault: VAULT,
    };
    SCENARIOS[scenario]!(one, short, dice);
    return one;
  });
  const secretsOf = (vault: string) =>
    drawn.flatMap(({ name, stored, vault: ownVault }, index) =>
      stored && ownVault === vault
        ? [
            {
              name: `app-${String(index).padStart(2, "0")}`,
              value: secretValueOf(name, "current"),
              contentType: `client:${appIdOf(name)}:${keyIdOf(name, "current")}`,
            },
          ]
        : [],
    );
  const clusterVaults = drawn.filter(({ scenario }) => scenario === "cluster").map(({ vault }) => vault);
  const company: Company = {
    subscriptions: [
      {
        name: "Apps",
        vaults: [
          { name: VAULT, secrets: secretsOf(VAULT) },
          { name: COPIES, secrets: [] },
          ...clusterVaults.map((vault) => ({ name: vault, secrets: secretsOf(vault) })),
        ],
        resources: drawn.flatMap(({ resources }) => resources),
        roleAssignments: clusterVaults.map((vault) => ({
          principal: `provider of ${vault.slice("kv-".length)}`,
          role: "Key Vault Secrets User" as const,
          vault,
        })),
      },
    ],
    applications: drawn.map(({ application }) => application),
    devops: {
      organization: "acme",
      projects: [
        {
          name: "Apps",
          connections: drawn.flatMap(({ connections }) => connections),
          groups: drawn.flatMap(({ groups }) => groups),
        },
      ],
    },
  };
  return { company, expected: drawn, records: drawn.flatMap(({ records }) => records) };
}
