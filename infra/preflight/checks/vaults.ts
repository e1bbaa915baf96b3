// Checks which of the vaults to watch the service could not read after the deployment: those of another tenant, those that the
// network settings close, and those with access policies.

import * as z from "zod";
import { CloudFailure } from "../../../shared/platform/azure/failure.ts";
import {
  type Context,
  notChecked,
  readSubscription,
  textParameter,
  unlessUnregistered,
  watchedSubscriptions,
} from "../context.ts";
import { type CheckResult, counted, type Finding, quote } from "../finding.ts";

/** https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults */
const VERSION = "2026-02-01";
const Vault = z.object({
  id: z.string(),
  name: z.string(),
  properties: z.object({
    tenantId: z.string().nullish(),
    enableRbacAuthorization: z.boolean().nullish(),
    publicNetworkAccess: z.string().nullish(),
    networkAcls: z
      .object({
        defaultAction: z.string().nullish(),
        virtualNetworkRules: z.array(z.object({ id: z.string() })).nullish(),
      })
      .nullish(),
    privateEndpointConnections: z.array(z.unknown()).nullish(),
  }),
});
type Vault = z.infer<typeof Vault>;

export async function checkVaults(context: Context): Promise<CheckResult> {
  const findings: Finding[] = [];
  const watched = watchedSubscriptions(context);
  let count = 0;
  for (const id of watched) {
    try {
      const subscription =
        id === context.subscription.id
          ? context.subscription
          : await readSubscription(context.arm, id, context.subscription.tenantId);
      const path = `/subscriptions/${id}/providers/Microsoft.KeyVault/vaults`;
      const target = { operation: "list key vaults", resource: subscription.name };
      // A subscription that is not registered for Microsoft.KeyVault has no vaults.
      const list = await unlessUnregistered(context.arm.list({ path, apiVersion: VERSION, target }, Vault));
      const entries = list?.entries ?? [];
      count += entries.length;
      findings.push(...entries.flatMap((vault) => vaultFindings(context, vault, subscription.tenantId)));
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      findings.push(
        notChecked("vault.subscriptionUnreadable", id, error, `az keyvault list --subscription ${quote(id)}`),
      );
    }
  }
  if (watched.length === 0)
    return { summary: "not checked: a management group decides which vaults are watched", findings };
  return { summary: `${counted(count, "vault")} in ${counted(watched.length, "subscription")}`, findings };
}

function vaultFindings(context: Context, { id, name, properties }: Vault, tenantId: string): Finding[] {
  const finding = (code: string, message: string, remedy: string, command: string): Finding => ({
    code,
    severity: "degrades",
    subject: id,
    message,
    remedy,
    command,
  });
  const findings: Finding[] = [];
  if (properties.tenantId && properties.tenantId.toLowerCase() !== tenantId.toLowerCase()) {
    findings.push(
      finding(
        "vault.otherTenant",
        `The vault trusts tenant ${properties.tenantId}, in which the service's identity does not exist.`,
        "Watch the vault with a deployment in its own tenant, or change its tenant.",
        `az keyvault update --name ${quote(name)} --set properties.tenantId=${tenantId}`,
      ),
    );
  }
  const networkFinding = networkFindingOf(context, { id, name, properties }, finding);
  if (networkFinding) findings.push(networkFinding);
  if (properties.enableRbacAuthorization === false) {
    findings.push(
      finding(
        "vault.accessPolicies",
        "The vault uses access policies, so the role Key Vault Reader does not apply.",
        "After the deployment, add a policy for the service's identity (output SERVICE_IDENTITY_PRINCIPAL_ID).",
        `az keyvault set-policy --name ${quote(name)} --object-id "$SERVICE_IDENTITY_PRINCIPAL_ID" --secret-permissions list --key-permissions list get getrotationpolicy --certificate-permissions list get`,
      ),
    );
  }
  return findings;
}

/** Returns the finding if the vault's network settings keep the service out. */
function networkFindingOf(
  context: Context,
  { id, name, properties }: Vault,
  finding: (code: string, message: string, remedy: string, command: string) => Finding,
): Finding | undefined {
  const hasNetwork = context.parameters.values.networkEnabled === true;
  if (properties.publicNetworkAccess === "Disabled") {
    const endpoint = `az network private-endpoint create --name pe-${quote(name)} --resource-group ${context.group.name} --subnet SUBNET_ID --connection-name ${quote(name)} --group-id vault --private-connection-resource-id ${quote(id)}`;
    return finding(
      "vault.privateOnly",
      `The vault is reachable only through private endpoints (it has ${properties.privateEndpointConnections?.length ?? 0}).`,
      hasNetwork
        ? "After the deployment, create a private endpoint in the service's network, or peer the networks."
        : "Deploy with networkEnabled, then create a private endpoint in the service's network.",
      endpoint,
    );
  }
  if (properties.networkAcls?.defaultAction !== "Deny") return undefined;
  const existingSubnet = textParameter(context, "functionSubnetResourceId");
  const rules = properties.networkAcls.virtualNetworkRules ?? [];
  const isAllowed = rules.some((rule) => rule.id.toLowerCase() === existingSubnet?.toLowerCase());
  if (existingSubnet && hasNetwork && isAllowed) return undefined;
  // With a NAT gateway, the service calls from one public address, otherwise from its subnet. The templates create the gateway
  // only in a subnet that they create too. The outputs with the address and the new subnet exist only after the deployment.
  const source =
    context.parameters.values.natGatewayEnabled && !existingSubnet
      ? '--ip-address "$SERVICE_IP_ADDRESS"'
      : `--subnet ${existingSubnet ? quote(existingSubnet) : '"$SERVICE_SUBNET_ID"'}`;
  return finding(
    "vault.firewall",
    "The vault's firewall does not allow the service.",
    hasNetwork
      ? "After the deployment, allow the service's subnet or address (outputs SERVICE_SUBNET_ID and SERVICE_IP_ADDRESS)."
      : "Deploy with networkEnabled, then allow the service's subnet (output SERVICE_SUBNET_ID).",
    `az keyvault network-rule add --name ${quote(name)} ${source}`,
  );
}
