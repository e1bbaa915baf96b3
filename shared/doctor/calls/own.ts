import { randomUUID } from "node:crypto";
import { storageAccount } from "../../platform/storage/connection.ts";
import { assignCommand } from "../commands.ts";
import type { CheckContext } from "../context.ts";
import type { OutgoingCall } from "../outgoing-call.ts";
import { type Action, SECRET_WRITES } from "../own-roles.ts";
import { joinActions, notProven, off, type Result } from "../result.ts";

// The calls to the service's own resources: its identity, storage, vault, mail, settings and telemetry.

const PAGE = "permissions.md#the-services-own-resources";

const SECRETS =
  "Webhook addresses, audit anchor, SSO client secret and SAML key, credentials of sync providers and B2C tenants";

/**
 * Reports by the identity's roles whether a write to one of the service's own resources is permitted.
 *
 * @param name - Name of the resource. Undefined for a storage account that a connection string opens: no role is needed.
 * @param id - Resource ID, if known.
 */
async function checkWrite(
  context: CheckContext,
  name: string | undefined,
  actions: readonly Action[],
  role: string,
  id?: string,
): Promise<Result[]> {
  if (name === undefined)
    return [
      { outcome: "works", resource: "the storage account", detail: "The connection string has a key of its own." },
    ];
  const command = assignCommand(await context.principal(), role, id ?? `<resource id of ${name}>`);
  return await joinActions(actions.map((action) => context.whereHeld(action, { name, id }, command)));
}

/** Returns the name of the storage account that the identity opens. Undefined if a connection string opens it. */
const accountOf = ({ deps: { connection } }: CheckContext): string | undefined =>
  "tableServiceUri" in connection ? storageAccount(connection) : undefined;

/** Makes a call to the service's own vault, if it has one. */
const onOwnVault =
  (check: (context: CheckContext, vaultUrl: string) => Promise<Result[]>): OutgoingCall["check"] =>
  async (context) => {
    const url = context.config.SERVICE_KEY_VAULT_URL;
    return url === undefined ? off("SERVICE_KEY_VAULT_URL is not set.") : await check(context, url);
  };

/** Returns the first label of an address's host, which is the name of the Azure resource. */
const resourceNameOf = (url: string): string => new URL(url).hostname.split(".")[0]!;

export const ownCalls: readonly OutgoingCall[] = [
  {
    id: "identity.token",
    feature: "Sign-in of the service",
    call: "token request",
    permissions: [],
    page: "deploy.md",
    async check(context) {
      return [
        await context.attempt("the service's identity", async () => void (await context.deps.identity.describe())),
      ];
    },
  },
  {
    id: "storage.readTables",
    feature: "State",
    call: "tables of its storage account",
    permissions: ["tables/entities"],
    page: PAGE,
    check: async (context) => [await context.attempt("the tables", async () => void (await context.deps.readTable()))],
  },
  {
    id: "storage.writeTables",
    feature: "State",
    call: "tables of its storage account",
    permissions: ["Storage Table Data Contributor"],
    page: PAGE,
    check: (context) =>
      checkWrite(
        context,
        accountOf(context),
        [{ dataAction: "Microsoft.Storage/storageAccounts/tableServices/tables/entities/write" }],
        "Storage Table Data Contributor",
      ),
  },
  {
    id: "storage.readQueues",
    feature: "Work",
    call: "queues of its storage account",
    permissions: ["queueServices/queues"],
    page: PAGE,
    check: async (context) => [await context.attempt("the queues", async () => void (await context.deps.readQueue()))],
  },
  {
    id: "storage.sendMessages",
    feature: "Work",
    call: "queues of its storage account",
    permissions: ["Storage Queue Data Contributor"],
    page: PAGE,
    check: (context) =>
      checkWrite(
        context,
        accountOf(context),
        [{ dataAction: "Microsoft.Storage/storageAccounts/queueServices/queues/messages/write" }],
        "Storage Queue Data Contributor",
      ),
  },
  {
    id: "storage.blobs",
    feature: "Host and package",
    call: "blobs of its storage account",
    permissions: ["Storage Blob Data Owner"],
    page: PAGE,
    check: async () => [
      notProven(
        "the storage account",
        "The Functions host uses blobs, not the service. This check could run, so the host could read its package.",
      ),
    ],
  },
  {
    id: "serviceVault.readSecret",
    feature: SECRETS,
    call: "secrets of its own vault",
    permissions: ["Key Vault Secrets Officer"],
    page: PAGE,
    check: onOwnVault(async (context, url) => {
      const command = assignCommand(
        await context.principal(),
        "Key Vault Secrets Officer",
        `<resource id of ${resourceNameOf(url)}>`,
      );
      // Reads a secret that does not exist: a 404 needs the same permission as a value.
      const read = async () => void (await context.deps.serviceKeyVault?.readTags("health-check"));
      return [await context.attempt("the service's own key vault", read, () => command)];
    }),
  },
  {
    id: "serviceVault.writeSecret",
    feature: SECRETS,
    call: "secrets of its own vault",
    permissions: ["Key Vault Secrets Officer"],
    page: PAGE,
    check: onOwnVault((context, url) =>
      checkWrite(
        context,
        resourceNameOf(url),
        SECRET_WRITES,
        "Key Vault Secrets Officer",
        context.config.SERVICE_KEY_VAULT_ID,
      ),
    ),
  },
  {
    id: "firstPassword.readAssignment",
    feature: "First password",
    call: "GET …/roleAssignments/{name}",
    permissions: ["Microsoft.Authorization/roleAssignments/read"],
    page: PAGE,
    async check(context) {
      const { SERVICE_KEY_VAULT_ID: vaultId, DEPLOYER_OBJECT_ID: deployer } = context.config;
      if (vaultId === undefined || deployer === undefined) return off("DEPLOYER_OBJECT_ID is not set.");
      const command = assignCommand(await context.principal(), "Key Vault Secrets Officer", vaultId);
      // An assignment that does not exist: a 404 needs the same permission as an existing one.
      const id = `${vaultId}/providers/Microsoft.Authorization/roleAssignments/${randomUUID()}`;
      const read = async () => void (await context.clients.readAssignment(id));
      return [await context.attempt("the service's own key vault", read, () => command)];
    },
  },
  {
    id: "mail.readOutcome",
    feature: "Mail",
    call: "GET /emails/operations/{id}",
    permissions: ["Microsoft.Communication/CommunicationServices/read"],
    page: PAGE,
    async check(context) {
      const { mail } = context.deps;
      if (!mail) return off("Mail is not configured.");
      const command = assignCommand(await context.principal(), MAIL_ROLE, "<resource id of Communication Services>");
      return [
        await context.attempt("Communication Services", async () => {
          // Asks for a mail that does not exist: `notFound` proves the permission, and `unavailable` is a status 401 or 403.
          const answer = await mail.outcome(randomUUID());
          if (answer.kind === "notFound") return undefined;
          const detail = "reason" in answer ? answer.reason : answer.kind;
          return answer.kind === "unavailable"
            ? { outcome: "permissionMissing", detail, command }
            : { outcome: answer.kind === "unknown" ? "unreachable" : "failed", detail };
        }),
      ];
    },
  },
  {
    id: "mail.send",
    feature: "Mail",
    call: "POST /emails:send",
    permissions: ["Communication and Email Service Owner"],
    page: PAGE,
    async check(context) {
      if (!context.deps.mail) return off("Mail is not configured.");
      const { COMMUNICATION_CONNECTION_STRING: key, COMMUNICATION_ENDPOINT: endpoint = "" } = context.config;
      if (key !== undefined)
        return [
          notProven("Communication Services", "A check sends no mail. POST /alerts/rules/{rule_id}/test sends one."),
        ];
      const name = resourceNameOf(endpoint);
      const command = assignCommand(await context.principal(), MAIL_ROLE, `<resource id of ${name}>`);
      return await context.whereHeld(
        { action: "Microsoft.Communication/CommunicationServices/write" },
        { name },
        command,
      );
    },
  },
  {
    id: "appConfiguration.settings",
    feature: "Settings from a store (option)",
    call: "GET /kv",
    permissions: ["App Configuration Data Reader"],
    page: PAGE,
    async check(context) {
      const { appConfiguration } = context.deps;
      if (!appConfiguration) return off("APP_CONFIGURATION_ENDPOINT is not set.");
      const command = assignCommand(
        await context.principal(),
        "App Configuration Data Reader",
        "<resource id of the store>",
      );
      return [
        await context.attempt(
          "App Configuration",
          async () => void (await appConfiguration.read()),
          () => command,
        ),
      ];
    },
  },
  {
    id: "telemetry.send",
    feature: "Logs and metrics",
    call: "ingestion of Application Insights",
    permissions: ["Monitoring Metrics Publisher"],
    page: PAGE,
    check: async () => [
      notProven("Application Insights", "Telemetry can only be written. Its newest entry shows whether it arrives."),
    ],
  },
];

const MAIL_ROLE = "Communication and Email Service Owner";
