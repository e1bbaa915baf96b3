import { randomUUID } from "node:crypto";
import { storageAccount } from "../../platform/storage/connection.ts";
import { assignCommand } from "../commands.ts";
import type { Doctor } from "../context.ts";
import type { OutgoingCall } from "../outgoing-call.ts";
import { notProven, off, type Result } from "../result.ts";

// The calls to the service's own resources: its identity, storage, vault, mail, settings and telemetry.

const PAGE = "permissions.md#the-services-own-resources";

const SECRETS =
  "Webhook addresses, audit anchor, SSO client secret and SAML key, credentials of sync providers and B2C tenants";

/** Finds out by the identity's roles whether a write to one of the service's own resources is permitted. */
async function write(doctor: Doctor, name: string | undefined, dataAction: string, role: string): Promise<Result[]> {
  if (name === undefined)
    return [
      { outcome: "works", resource: "the storage account", detail: "The connection string has a key of its own." },
    ];
  const command = assignCommand(await doctor.principal(), role, `<resource id of ${name}>`);
  return await doctor.whereHeld({ dataAction }, { name }, command);
}

/** Returns the name of the storage account that the identity opens. Undefined if a connection string opens it. */
const accountOf = ({ deps: { connection } }: Doctor): string | undefined =>
  "tableServiceUri" in connection ? storageAccount(connection) : undefined;

/** Makes a call to the service's own vault, if it has one. */
const onOwnVault =
  (check: (doctor: Doctor, vaultUrl: string) => Promise<Result[]>): OutgoingCall["check"] =>
  async (doctor) => {
    const url = doctor.config.SERVICE_KEY_VAULT_URL;
    return url === undefined ? off("SERVICE_KEY_VAULT_URL is not set.") : await check(doctor, url);
  };

/** Returns the first label of an address's host, which is the name of the Azure resource. */
const nameIn = (url: string): string => new URL(url).hostname.split(".")[0]!;

export const ownCalls: readonly OutgoingCall[] = [
  {
    id: "identity.token",
    feature: "Sign-in of the service",
    call: "token request",
    permissions: [],
    page: "deploy.md",
    async check(doctor) {
      return [await doctor.attempt("the service's identity", async () => void (await doctor.deps.identity.describe()))];
    },
  },
  {
    id: "storage.readTables",
    feature: "State",
    call: "tables of its storage account",
    permissions: ["tables/entities"],
    page: PAGE,
    check: async (doctor) => [await doctor.attempt("the tables", async () => void (await doctor.deps.readTable()))],
  },
  {
    id: "storage.writeTables",
    feature: "State",
    call: "tables of its storage account",
    permissions: ["Storage Table Data Contributor"],
    page: PAGE,
    check: (doctor) =>
      write(
        doctor,
        accountOf(doctor),
        "Microsoft.Storage/storageAccounts/tableServices/tables/entities/write",
        "Storage Table Data Contributor",
      ),
  },
  {
    id: "storage.readQueues",
    feature: "Work",
    call: "queues of its storage account",
    permissions: ["queueServices/queues"],
    page: PAGE,
    check: async (doctor) => [await doctor.attempt("the queues", async () => void (await doctor.deps.readQueue()))],
  },
  {
    id: "storage.sendMessages",
    feature: "Work",
    call: "queues of its storage account",
    permissions: ["Storage Queue Data Contributor"],
    page: PAGE,
    check: (doctor) =>
      write(
        doctor,
        accountOf(doctor),
        "Microsoft.Storage/storageAccounts/queueServices/queues/messages/write",
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
    check: onOwnVault(async (doctor, url) => {
      const command = assignCommand(
        await doctor.principal(),
        "Key Vault Secrets Officer",
        `<resource id of ${nameIn(url)}>`,
      );
      // Reads a secret that does not exist: a 404 needs the same permission as a value.
      const read = async () => void (await doctor.deps.serviceKeyVault?.readTags("health-check"));
      return [await doctor.attempt("the service's own key vault", read, () => command)];
    }),
  },
  {
    id: "serviceVault.writeSecret",
    feature: SECRETS,
    call: "secrets of its own vault",
    permissions: ["Key Vault Secrets Officer"],
    page: PAGE,
    check: onOwnVault((doctor, url) =>
      write(doctor, nameIn(url), "Microsoft.KeyVault/vaults/secrets/setSecret/action", "Key Vault Secrets Officer"),
    ),
  },
  {
    id: "firstPassword.readAssignment",
    feature: "First password",
    call: "GET …/roleAssignments/{name}",
    permissions: ["Microsoft.Authorization/roleAssignments/read"],
    page: PAGE,
    async check(doctor) {
      const { SERVICE_KEY_VAULT_ID: vaultId, DEPLOYER_OBJECT_ID: deployer } = doctor.config;
      if (vaultId === undefined || deployer === undefined) return off("DEPLOYER_OBJECT_ID is not set.");
      const command = assignCommand(await doctor.principal(), "Key Vault Secrets Officer", vaultId);
      // An assignment that does not exist: a 404 needs the same permission as an existing one.
      const id = `${vaultId}/providers/Microsoft.Authorization/roleAssignments/${randomUUID()}`;
      const read = async () => void (await doctor.clients.readAssignment(id));
      return [await doctor.attempt("the service's own key vault", read, () => command)];
    },
  },
  {
    id: "mail.readOutcome",
    feature: "Mail",
    call: "GET /emails/operations/{id}",
    permissions: ["Microsoft.Communication/CommunicationServices/read"],
    page: PAGE,
    async check(doctor) {
      const { mail } = doctor.deps;
      if (!mail) return off("Mail is not configured.");
      const command = assignCommand(await doctor.principal(), MAIL_ROLE, "<resource id of Communication Services>");
      return [
        await doctor.attempt("Communication Services", async () => {
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
    async check(doctor) {
      if (!doctor.deps.mail) return off("Mail is not configured.");
      const { COMMUNICATION_CONNECTION_STRING: key, COMMUNICATION_ENDPOINT: endpoint = "" } = doctor.config;
      if (key !== undefined)
        return [
          notProven("Communication Services", "A check sends no mail. POST /alerts/rules/{rule_id}/test sends one."),
        ];
      const name = nameIn(endpoint);
      const command = assignCommand(await doctor.principal(), MAIL_ROLE, `<resource id of ${name}>`);
      return await doctor.whereHeld(
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
    async check(doctor) {
      const { appConfiguration } = doctor.deps;
      if (!appConfiguration) return off("APP_CONFIGURATION_ENDPOINT is not set.");
      const command = assignCommand(
        await doctor.principal(),
        "App Configuration Data Reader",
        "<resource id of the store>",
      );
      return [
        await doctor.attempt(
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
