import { az } from "../platform/azure/cli.ts";
import { parseResourceId } from "../platform/azure/resource-id.ts";
import type { Blocker, NeededFederatedCredential, Replacement, SecretConsumer, Step, SyncTarget } from "./report.ts";

/** Decides by the kind of a consumer what can replace a client secret, and lists the steps. Makes no request. */

/** What the steps need to know about the application and its cloud. */
export interface ApplicationContext {
  appId: string;
  tenantId: string;
  /** Start of the issuer of Entra's tokens in this cloud. */
  entraIssuer: string;
  /** Audience of tokens that Entra exchanges in this cloud. */
  audience: string;
  /** Existing federated credentials. Empty if they could not be read. */
  federated: readonly { issuer: string; subject: string }[];
}

/** Issuer of tokens of GitHub Actions on github.com: https://docs.github.com/actions/reference/openid-connect-reference */
const GITHUB_ISSUER = "https://token.actions.githubusercontent.com";
const GITHUB_API = "https://api.github.com";

const PRINCIPAL = "<principal ID of the managed identity>";
const IDENTITY = "<resource ID of the managed identity>";

/** Setting in which built-in authentication of App Service looks for the secret. */
const BUILT_IN_AUTHENTICATION = /^appsettings\/MICROSOFT_PROVIDER_AUTHENTICATION_SECRET$/i;
const MANAGED_IDENTITY_SETTING = "OVERRIDE_USE_MI_FIC_ASSERTION_CLIENTID";

/** Returns what can replace the secret for a consumer. `target`: what a sync record copies the secret to, if it is known. */
export function replacementOf(
  consumer: SecretConsumer,
  application: ApplicationContext,
  target: SyncTarget | undefined,
): Replacement {
  switch (consumer.kind) {
    case "webApp":
    case "functionApp":
    case "containerApp":
    case "containerAppJob":
    case "virtualMachine":
      return trustedIdentity(consumer, application);
    case "dataFactory":
    case "logicApp":
    case "apiManagement":
      return identityInstead(consumer);
    case "kubernetesCluster":
      return cluster(consumer, application);
    case "devopsServiceConnection":
      return serviceConnection(consumer, application);
    case "devopsVariableGroup":
      return variableGroup(application);
    case "syncRecord":
      return target === undefined ? unknownKind("The sync record could not be read.") : copyOf(target, application);
    default:
      return unknownKind(`The service does not know how a consumer of the kind ${consumer.kind} signs in.`);
  }
}

const unknownKind = (reason: string): Replacement => ({
  by: "unknown",
  questions: [{ name: "how the consumer signs in", how: "Ask the owner of the consumer." }],
  blockers: [{ code: "unknownKind", message: `${reason} Find out how it uses the secret.` }],
  steps: [],
});

/** Returns a command that adds a federated credential. Placeholders keep the command from working before they are replaced. */
function federateCommand({ appId }: ApplicationContext, name: string, needed: NeededFederatedCredential): string {
  const { issuer, subject, audience } = needed;
  const parameters = JSON.stringify({ name, issuer, subject, audiences: [audience] });
  return az("ad app federated-credential create", { id: appId, parameters });
}

const groupOf = (id: string): { subscription: string; "resource-group": string } => {
  const parsed = parseResourceId(id);
  return {
    subscription: parsed?.subscriptionId ?? "<subscription>",
    "resource-group": parsed?.resourceGroup ?? "<resource group>",
  };
};

/** Commands that assign a user-assigned identity, by kind of consumer. */
const ASSIGN: Partial<Record<SecretConsumer["kind"], { command: string; option: string }>> = {
  webApp: { command: "webapp identity assign", option: "identities" },
  functionApp: { command: "functionapp identity assign", option: "identities" },
  containerApp: { command: "containerapp identity assign", option: "user-assigned" },
  containerAppJob: { command: "containerapp job identity assign", option: "user-assigned" },
  virtualMachine: { command: "vm identity assign", option: "identities" },
};

/**
 * An application can trust a user-assigned identity of its own tenant, and keeps its permissions. System-assigned identities are
 * not supported: https://learn.microsoft.com/entra/workload-id/workload-identity-federation-config-app-trust-managed-identity
 */
function trustedIdentity(consumer: SecretConsumer, application: ApplicationContext): Replacement {
  const { id, kind, evidence } = consumer;
  const [name = "<name>", slot] = parseResourceId(id)?.names ?? [];
  const place = { ...groupOf(id), name, ...(slot !== undefined && { slot }) };
  const needed: NeededFederatedCredential = {
    issuer: `${application.entraIssuer}/${application.tenantId}/v2.0`,
    subject: PRINCIPAL,
    audience: application.audience,
    exists: false,
  };
  const assign = ASSIGN[kind]!;
  const site = kind === "webApp" || kind === "functionApp" ? kind.toLowerCase() : undefined;
  const settings = evidence.flatMap((one) => (one.startsWith("appsettings/") ? one.slice("appsettings/".length) : []));
  const hasBuiltInAuthentication = evidence.some((one) => BUILT_IN_AUTHENTICATION.test(one));
  const steps: Step[] = [
    {
      text: "Create a user-assigned managed identity in the tenant of the application, or choose one that only this consumer uses.",
      command: az("identity create", { ...groupOf(id), name: "<name of the managed identity>" }),
    },
    {
      text: "Assign the identity to the consumer.",
      command: az(assign.command, { ...place, [assign.option]: IDENTITY }),
    },
    {
      text: "Read the principal ID of the identity. The client ID is another value and does not work as the subject.",
      command: az("identity show", { ids: IDENTITY, query: "principalId", output: "tsv" }),
    },
    {
      text: "Let the application trust the identity.",
      command: federateCommand(application, "<name of the federated credential>", needed),
    },
    hasBuiltInAuthentication && site !== undefined
      ? {
          text: `Let the built-in authentication of App Service use the identity: add this setting with the client ID of the identity, and name it in clientSecretSettingName of the authentication settings. See https://learn.microsoft.com/azure/app-service/configure-authentication-provider-aad.`,
          command: az(`${site} config appsettings set`, {
            ...place,
            settings: `${MANAGED_IDENTITY_SETTING}=<client ID of the managed identity>`,
          }),
        }
      : {
          text: "Change the program: request a token of the identity for the audience, and send it as the client assertion in place of the secret. Deploy the change, and check that it signs in.",
        },
    ...(site !== undefined && settings.length > 0
      ? settings.map((setting) => ({
          text: "Remove the setting with the secret.",
          command: az(`${site} config appsettings delete`, { ...place, "setting-names": setting }),
        }))
      : [{ text: "Remove the secret from the configuration of the consumer." }]),
  ];
  return {
    by: "managedIdentity",
    mode: "trusted",
    federatedCredential: needed,
    questions: [
      {
        name: "principal ID of the managed identity",
        how: "The plan creates the identity and reads its principal ID.",
      },
    ],
    blockers: [],
    steps,
  };
}

/** These services sign in with their own identity and can't exchange its token for one of another application. */
const identityInstead = ({ name }: SecretConsumer): Replacement => ({
  by: "managedIdentity",
  mode: "instead",
  questions: [
    {
      name: "permissions of the application that the identity needs",
      how: "List its role assignments and API permissions.",
    },
  ],
  blockers: [],
  steps: [
    {
      text: `Enable a managed identity of ${name}, and grant it the permissions that it used through the application.`,
    },
    {
      text: "Select the managed identity as authentication in each connection that used the application, and test it.",
    },
    { text: "Remove the secret from the configuration of the consumer." },
  ],
});

/** https://learn.microsoft.com/azure/aks/workload-identity-overview */
function cluster({ id, name }: SecretConsumer, application: ApplicationContext): Replacement {
  const place = { ...groupOf(id), name };
  const needed: NeededFederatedCredential = {
    issuer: "<OIDC issuer of the cluster>",
    subject: "system:serviceaccount:<namespace>:<service account>",
    audience: application.audience,
    exists: false,
  };
  return {
    by: "federatedCredential",
    federatedCredential: needed,
    questions: [
      { name: "OIDC issuer of the cluster", how: "The plan reads it. Copy it with its slash at the end." },
      {
        name: "namespace and service account of the pods",
        how: "Ask the team of the workload, or run kubectl get pods -A.",
      },
    ],
    blockers: [],
    steps: [
      {
        text: "Enable the OIDC issuer and workload identity of the cluster.",
        command: az("aks update", { ...place, "enable-oidc-issuer": "", "enable-workload-identity": "" }),
      },
      {
        text: "Read the issuer.",
        command: az("aks show", { ...place, query: "oidcIssuerProfile.issuerUrl", output: "tsv" }),
      },
      {
        text: "Let the application trust the service account.",
        command: federateCommand(application, "<name of the federated credential>", needed),
      },
      {
        text: "Annotate the service account with azure.workload.identity/client-id, label the pods with azure.workload.identity/use, and let the program use its workload identity.",
      },
      { text: "Remove the secret from the pods." },
    ],
  };
}

/** Azure DevOps chooses the issuer and subject, which differ by age and kind of the connection, and shows them at conversion. */
function devopsCredential(application: ApplicationContext): NeededFederatedCredential {
  return {
    issuer: "<issuer that Azure DevOps shows>",
    subject: "<subject that Azure DevOps shows>",
    audience: application.audience,
    exists: false,
  };
}
const DEVOPS_QUESTION = {
  name: "issuer and subject",
  how: "Azure DevOps shows both when the connection is converted or created. Copy them exactly.",
};

/** https://learn.microsoft.com/azure/devops/pipelines/release/configure-workload-identity */
function serviceConnection({ refresh }: SecretConsumer, application: ApplicationContext): Replacement {
  const needed = devopsCredential(application);
  // Azure DevOps created the connection with the application, and also adds the federated credential.
  const isAutomatic = refresh === "willBreak";
  return {
    by: "federatedCredential",
    federatedCredential: needed,
    questions: isAutomatic ? [] : [DEVOPS_QUESTION],
    blockers: [],
    steps: isAutomatic
      ? [
          {
            text: "Convert the service connection to workload identity federation in the project settings of Azure DevOps. Azure DevOps adds the federated credential. The conversion can be reverted for seven days.",
          },
          { text: "Run each pipeline that uses the connection once." },
        ]
      : [
          {
            text: "Start the conversion of the service connection to workload identity federation in the project settings of Azure DevOps, and copy the issuer and the subject that it shows.",
          },
          {
            text: "Let the application trust the connection.",
            command: federateCommand(application, "<name of the federated credential>", needed),
          },
          {
            text: "Complete the conversion, and run each pipeline that uses the connection once. It can be reverted for seven days.",
          },
        ],
  };
}

function variableGroup(application: ApplicationContext): Replacement {
  const needed = devopsCredential(application);
  return {
    by: "federatedCredential",
    federatedCredential: needed,
    questions: [
      { name: "pipelines that use the variable", how: "See the pipeline permissions of the variable group." },
      DEVOPS_QUESTION,
    ],
    blockers: [],
    steps: [
      {
        text: "Create an Azure Resource Manager service connection with workload identity federation for the application, and copy the issuer and the subject that Azure DevOps shows.",
      },
      {
        text: "Let the application trust the connection.",
        command: federateCommand(application, "<name of the federated credential>", needed),
      },
      { text: "Change each pipeline: sign in with the service connection instead of the variable. Run it once." },
      { text: "Remove the variable from the group." },
    ],
  };
}

function copyOf(target: SyncTarget, application: ApplicationContext): Replacement {
  if (target.provider === "github") return githubActions(target, application);
  if (target.provider === "kubernetes") return foreignCluster(target, application);
  const message = `The copy is in ${target.provider}, and the service can't see who reads it. A workload outside Azure needs a token of an OpenID Connect issuer that Entra can reach.`;
  const blocker: Blocker = { code: "outsideAzure", message };
  return {
    by: "none",
    questions: [{ name: "workloads that read the copy", how: `Read the access log of ${target.provider}.` }],
    blockers: [blocker],
    steps: [],
  };
}

/**
 * The subject of a workflow's token depends on what triggers it, on the spelling of the names, and on settings of the repository and
 * organization: a template, and immutable IDs. So the plan reads it from a token.
 * https://docs.github.com/actions/reference/openid-connect-reference
 */
function githubActions({ name, location }: SyncTarget, application: ApplicationContext): Replacement {
  const parts = name.split("/");
  const [owner, repository] = parts;
  const environment = parts.length === 4 ? parts[2] : undefined;
  // Null if the configuration names no server. Absent before the first run, while the server is unknown.
  const isPublic = location.apiUrl === null || location.apiUrl === GITHUB_API;
  const usualSubject = environment === undefined ? undefined : `repo:${owner}/${repository}:environment:${environment}`;
  const issuer = isPublic ? GITHUB_ISSUER : "<issuer of the token of the workflow>";
  const exists =
    usualSubject !== undefined &&
    application.federated.some((one) => one.issuer === issuer && one.subject === usualSubject);
  const needed: NeededFederatedCredential = {
    issuer,
    subject: "<subject of the token of the workflow>",
    audience: application.audience,
    ...(usualSubject !== undefined && { usualSubject }),
    exists,
  };
  return {
    by: "federatedCredential",
    federatedCredential: needed,
    questions: [
      {
        name: "issuer and subject",
        how: "Print the claims iss and sub of a token in the workflow. An enterprise can have its own issuer, and a repository its own format of the subject.",
      },
      ...(environment === undefined
        ? [
            {
              name: "branch, tag or environment",
              how: `List the workflows of ${owner}/${repository} that use the secret, and what triggers them.`,
            },
          ]
        : []),
    ],
    blockers: [],
    steps: [
      {
        text: `Give the workflows of ${owner}/${repository} that use the secret the permission id-token: write, and print the claims iss and sub of a token for the audience ${application.audience}.`,
      },
      exists
        ? { text: "Compare the claims with the existing federated credential, and correct it if they differ." }
        : {
            text: "Let the application trust the workflow, with the claims exactly as printed.",
            command: federateCommand(application, "<name of the federated credential>", needed),
          },
      {
        text: "Change the workflows: azure/login with client-id and tenant-id and without client-secret. Run them once.",
      },
      { text: "Delete the sync record with its target, so that the secret is removed from GitHub." },
    ],
  };
}

function foreignCluster({ location }: SyncTarget, application: ApplicationContext): Replacement {
  const namespace = typeof location.namespace === "string" ? location.namespace : "<namespace>";
  const needed: NeededFederatedCredential = {
    issuer: "<service account issuer of the cluster>",
    subject: `system:serviceaccount:${namespace}:<service account>`,
    audience: application.audience,
    exists: false,
  };
  return {
    by: "federatedCredential",
    federatedCredential: needed,
    questions: [
      {
        name: "service account issuer of the cluster",
        how: "Run kubectl get --raw /.well-known/openid-configuration. Entra must reach the issuer from the internet.",
      },
      { name: "service account of the pods", how: `Run kubectl get pods -n ${namespace} -o yaml.` },
    ],
    blockers: [],
    steps: [
      {
        text: "Install the Azure Workload Identity webhook in the cluster. The issuer must be reachable from the internet.",
      },
      {
        text: "Let the application trust the service account.",
        command: federateCommand(application, "<name of the federated credential>", needed),
      },
      { text: "Let the program use its workload identity instead of the secret, and deploy it." },
      { text: "Delete the sync record with its target, so that the secret is removed from the cluster." },
    ],
  };
}
