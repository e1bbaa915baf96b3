import * as z from "zod";
import type { AssetType } from "../../inventory/asset.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";

/**
 * Operations of Key Vault that count as use of an asset. A list returns only names, so it does not count.
 * https://learn.microsoft.com/azure/key-vault/general/logging#interpret-your-key-vault-logs
 */
export const USES = [
  "SecretGet",
  "CertificateGet",
  "KeyGet",
  "KeySign",
  "KeyVerify",
  "KeyDecrypt",
  "KeyEncrypt",
  "KeyUnwrap",
  "KeyWrap",
] as const;

/**
 * Returns the query that summarizes a workspace's logs by day: who used which version of which asset, when each vault wrote to
 * the log, and which application credentials signed in. The result has one row for each, however many events there are.
 *
 * Events of vaults are in `AZKVAuditLogs`, or in `AzureDiagnostics` for older diagnostic settings. A missing table does not
 * fail the query: `isfuzzy` skips it, and the empty `print … | where false` still defines the columns.
 * https://learn.microsoft.com/azure/azure-monitor/reference/tables/azkvauditlogs,
 * https://learn.microsoft.com/azure/azure-monitor/reference/tables/aadserviceprincipalsigninlogs
 *
 * @param own - Object IDs of this service, whose own reads do not count.
 */
export const summaryQuery = (own: readonly string[]): string => `let Uses = dynamic(${JSON.stringify(USES)});
let Own = dynamic(${JSON.stringify(own.filter((id) => GUID.test(id)))});
let VaultEvents = union isfuzzy=true
  (print TimeGenerated = datetime(null), OperationName = "", VaultId = "", AssetUrl = "", Status = int(null), ObjectId = "", AppId = "", UserName = "", IdentityOf = ""
  | where false),
  (AZKVAuditLogs
  | extend Claim = todynamic(Identity).claim
  | project TimeGenerated, OperationName, VaultId = _ResourceId, AssetUrl = coalesce(Id, RequestUri), Status = toint(HttpStatusCode),
    ObjectId = coalesce(tostring(Claim.oid), tostring(Claim["http://schemas.microsoft.com/identity/claims/objectidentifier"])),
    AppId = tostring(Claim.appid),
    UserName = coalesce(tostring(Claim.upn), tostring(Claim["http://schemas.xmlsoap.org/ws/2005/05/identity/claims/upn"])),
    IdentityOf = coalesce(tostring(Claim.xms_az_rid), tostring(Claim.xms_mirid))),
  (AzureDiagnostics
  | where ResourceProvider =~ "MICROSOFT.KEYVAULT" and Category == "AuditEvent"
  | project TimeGenerated, OperationName, VaultId = _ResourceId,
    AssetUrl = coalesce(column_ifexists("id_s", ""), column_ifexists("requestUri_s", "")),
    Status = toint(column_ifexists("httpStatusCode_d", real(null))),
    ObjectId = coalesce(tostring(column_ifexists("identity_claim_oid_g", "")), tostring(column_ifexists("identity_claim_http_schemas_microsoft_com_identity_claims_objectidentifier_g", ""))),
    AppId = tostring(column_ifexists("identity_claim_appid_g", "")),
    UserName = coalesce(column_ifexists("identity_claim_upn_s", ""), column_ifexists("identity_claim_http_schemas_xmlsoap_org_ws_2005_05_identity_claims_upn_s", "")),
    IdentityOf = coalesce(column_ifexists("identity_claim_xms_az_rid_s", ""), column_ifexists("identity_claim_xms_mirid_s", "")));
let SignIns = union isfuzzy=true
  (print TimeGenerated = datetime(null), AppId = "", KeyId = "", Name = ""
  | where false),
  (AADServicePrincipalSignInLogs
  | project TimeGenerated, AppId, KeyId = ServicePrincipalCredentialKeyId, Name = ServicePrincipalName);
union
  (VaultEvents
  | summarize FirstAt = min(TimeGenerated), LastAt = max(TimeGenerated), Rows = count() by Kind = "vault", Day = startofday(TimeGenerated), VaultId),
  (VaultEvents
  | where OperationName in (Uses) and Status between (200 .. 299) and ObjectId !in~ (Own)
  | summarize FirstAt = min(TimeGenerated), LastAt = max(TimeGenerated), Rows = count() by Kind = "use", Day = startofday(TimeGenerated), VaultId, AssetUrl, OperationName, ObjectId, AppId, UserName, IdentityOf),
  (SignIns
  | where isnotempty(KeyId)
  | summarize FirstAt = min(TimeGenerated), LastAt = max(TimeGenerated), Rows = count() by Kind = "signIn", Day = startofday(TimeGenerated), AppId, KeyId, Name)
| project Kind, Day, VaultId, AssetUrl, OperationName, ObjectId, AppId, UserName, IdentityOf, KeyId, Name, FirstAt, LastAt, Rows`;

const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Uses of one version of an asset by one caller on one day. Times are ISO 8601. */
export interface UseLine {
  vaultName: string;
  type: AssetType;
  name: string;
  /** Absent if the log does not contain it. */
  version?: string;
  operation: string;
  /** Object ID. If the log has none, the client ID or user name. */
  callerId: string;
  appId?: string;
  userName?: string;
  /** The resource whose managed identity the caller is. */
  identityOf?: string;
  day: string;
  lastAt: string;
  rows: number;
}

/** First and last event of a vault on a day. */
export interface VaultLine {
  vaultName: string;
  firstAt: string;
  lastAt: string;
}

/** Sign-ins with one credential of an application on one day. */
export interface SignInLine {
  appId: string;
  keyId: string;
  name: string;
  lastAt: string;
}

/** First and last sign-in with one credential on one day. */
export type SignInSpan = Pick<VaultLine, "firstAt" | "lastAt">;

/** Parsed result of the query. */
export interface Summary {
  uses: UseLine[];
  vaults: VaultLine[];
  signIns: SignInLine[];
  signInSpans: SignInSpan[];
}

const cell = z
  .string()
  .nullish()
  .transform((text) => text?.trim() || undefined);
const instant = z.union([z.date(), z.iso.datetime({ offset: true }).transform((text) => new Date(text))]);
const Line = z.object({
  Kind: z.enum(["use", "vault", "signIn"]),
  Day: instant,
  VaultId: cell,
  AssetUrl: cell,
  OperationName: cell,
  ObjectId: cell,
  AppId: cell,
  UserName: cell,
  IdentityOf: cell,
  KeyId: cell,
  Name: cell,
  FirstAt: instant,
  LastAt: instant,
  Rows: z.coerce.number().int().nonnegative(),
});

/** Names of callers can have any length, so they are cut. */
const MAX_NAME = 200;

/** Removes the query of a request's URL (`?api-version=…`), with which a URL names no asset. */
function withoutQuery(url: string | undefined): string | undefined {
  const end = url?.indexOf("?") ?? -1;
  return end < 0 ? url : url?.slice(0, end);
}

/** Parses the rows of the query. Skips rows that name no vault asset of this cloud. */
export function summaryOf(rows: readonly unknown[], names: KeyVaultNames): Summary {
  const found: Summary = { uses: [], vaults: [], signIns: [], signInSpans: [] };
  for (const row of rows) {
    const { data } = Line.safeParse(row);
    if (!data || Number.isNaN(data.Day.getTime()) || Number.isNaN(data.LastAt.getTime())) continue;
    const lastAt = data.LastAt.toISOString();
    if (data.Kind === "signIn" && data.AppId && data.KeyId) {
      found.signInSpans.push({ firstAt: data.FirstAt.toISOString(), lastAt });
      found.signIns.push({
        appId: data.AppId.toLowerCase(),
        keyId: data.KeyId.toLowerCase(),
        name: (data.Name ?? "").slice(0, MAX_NAME),
        lastAt,
      });
    }
    const vaultName = /\/vaults\/([^/]+)$/i.exec(data.VaultId ?? "")?.[1]?.toLowerCase();
    if (data.Kind === "vault" && vaultName)
      found.vaults.push({ vaultName, firstAt: data.FirstAt.toISOString(), lastAt });
    const asset = data.Kind === "use" ? names.ofUrl(withoutQuery(data.AssetUrl)) : undefined;
    const callerId = data.ObjectId ?? data.AppId ?? data.UserName;
    if (!asset?.type || !asset.name || !callerId) continue;
    found.uses.push({
      vaultName: asset.vaultName.toLowerCase(),
      type: asset.type,
      name: asset.name,
      ...(asset.version && { version: asset.version.toLowerCase() }),
      operation: (data.OperationName ?? "").slice(0, MAX_NAME),
      callerId: callerId.toLowerCase().slice(0, MAX_NAME),
      ...(data.AppId && { appId: data.AppId.toLowerCase().slice(0, MAX_NAME) }),
      ...(data.UserName && { userName: data.UserName.slice(0, MAX_NAME) }),
      // Only resource IDs start with a slash.
      ...(data.IdentityOf?.startsWith("/") && { identityOf: data.IdentityOf.slice(0, 1000) }),
      day: data.Day.toISOString().slice(0, 10),
      lastAt,
      rows: data.Rows,
    });
  }
  return found;
}
