// Checks the existing resources that parameters name: subnets, DNS zones, workspaces, roles, vaults and identities.

import * as z from "zod";
import type { CallTarget } from "../../../shared/platform/azure/failure.ts";
import { unlessMissing } from "../../../shared/platform/azure/failure.ts";
import { type Context, parameterName, proposeValue, textParameter, unlessUnregistered } from "../context.ts";
import { type CheckResult, type Finding, quote } from "../finding.ts";
import { isObject, type Value } from "../values.ts";

const NETWORK_VERSION = "2024-07-01";
const ZONE_VERSION = "2024-06-01";
const FLEX_DELEGATION = "Microsoft.App/environments";
/** Smallest subnet of an app: https://learn.microsoft.com/azure/azure-functions/functions-networking-options#subnets */
const MAX_PREFIX_LENGTH = 27;

/** Kinds of further resources that parameters name: the pattern of their IDs, and the command that lists the existing ones. */
const EXISTING = [
  {
    kind: "workspace",
    pattern: /\/Microsoft\.OperationalInsights\/workspaces\/[^/]+$/i,
    apiVersion: "2025-02-01",
    list: "az monitor log-analytics workspace list --query '[].id'",
  },
  {
    kind: "role",
    pattern: /\/Microsoft\.Authorization\/roleDefinitions\/[^/]+$/i,
    apiVersion: "2022-04-01",
    list: "az role definition list --custom-role-only --query '[].id'",
  },
  {
    kind: "key vault",
    pattern: /\/Microsoft\.KeyVault\/vaults\/[^/]+$/i,
    apiVersion: "2026-02-01",
    list: "az keyvault list --query '[].id'",
  },
  {
    kind: "identity",
    pattern: /\/Microsoft\.ManagedIdentity\/userAssignedIdentities\/[^/]+$/i,
    apiVersion: "2024-11-30",
    list: "az identity list --query '[].id'",
  },
  {
    kind: "private DNS zone",
    pattern: /\/Microsoft\.Network\/privateDnsZones\/[^/]+$/i,
    apiVersion: ZONE_VERSION,
    list: "az network private-dns zone list --query '[].id'",
  },
] as const;

const Existing = z.object({
  properties: z.object({ enablePurgeProtection: z.boolean().nullish(), clientId: z.string().nullish() }).nullish(),
});
const Located = z.object({ location: z.string() });
const Subnet = z.object({
  properties: z.object({
    addressPrefix: z.string().nullish(),
    addressPrefixes: z.array(z.string()).nullish(),
    delegations: z.array(z.object({ properties: z.object({ serviceName: z.string() }) })).nullish(),
    serviceEndpoints: z.array(z.object({ service: z.string().nullish() })).nullish(),
    natGateway: z.object({ id: z.string().nullish() }).nullish(),
  }),
});
type Subnet = z.infer<typeof Subnet>["properties"];

export async function checkNetwork(context: Context): Promise<CheckResult> {
  const findings: Finding[] = [];
  const [functions, endpoints] = [
    textParameter(context, "functionSubnetResourceId"),
    textParameter(context, "privateEndpointSubnetResourceId"),
  ];
  const isSame = functions !== "" && functions.toLowerCase() === endpoints.toLowerCase();
  const checked: string[] = [];
  for (const [id, check] of [
    [functions, functionSubnetFindings],
    [endpoints, endpointSubnetFindings],
  ] as const) {
    if (!id) continue;
    if (isSame && check === endpointSubnetFindings) continue;
    checked.push(id.split("/").slice(-3).join("/"));
    const subnet = await readSubnet(context, id);
    if (!subnet) findings.push(missing(id, "subnet", listSubnets(id)));
    else findings.push(...check(context, id, subnet), ...(await regionFindings(context, id)));
  }
  if (isSame) findings.push(sameSubnet(context, functions));
  if (endpoints) findings.push(...(await zoneFindings(context, endpoints)));
  for (const { kind, pattern, apiVersion, list } of EXISTING) {
    for (const id of idsIn(context).filter((one) => pattern.test(one))) {
      checked.push(id.split("/").at(-1)!);
      const target = { operation: `read the ${kind}`, resource: id };
      const existing = await read(context, id, apiVersion, target, Existing);
      if (!existing) findings.push(missing(id, kind, list));
      // The customer-managed key is the only parameter that names a vault.
      else if (kind === "key vault" && existing.properties?.enablePurgeProtection !== true)
        findings.push(noPurgeProtection(id));
      else if (kind === "identity") findings.push(...clientIdFindings(context, id, existing.properties?.clientId));
    }
  }
  return { summary: checked.length > 0 ? checked.join(", ") : "none named", findings };
}

const read = <T>({ arm }: Context, path: string, apiVersion: string, target: CallTarget, schema: z.ZodType<T>) =>
  unlessMissing(arm.call({ path, apiVersion, target }, schema));

async function readSubnet(context: Context, id: string): Promise<Subnet | undefined> {
  const target = { operation: "read the subnet", resource: id };
  return (await read(context, id, NETWORK_VERSION, target, Subnet))?.properties;
}

const missing = (id: string, kind: string, command: string): Finding => ({
  code: "existing.missing",
  severity: "stops",
  subject: id,
  message: `There is no such ${kind}.`,
  remedy: "Correct the id.",
  command,
});

/** https://learn.microsoft.com/azure/storage/common/customer-managed-keys-overview */
const noPurgeProtection = (id: string): Finding => ({
  code: "existing.purgeProtection",
  severity: "stops",
  subject: id,
  message: "The vault of the customer-managed key has no purge protection, which storage requires.",
  remedy: "Turn on purge protection, which can't be turned off again, or name a key of another vault.",
  command: `az keyvault update --name ${quote(id.split("/").at(-1)!)} --enable-purge-protection true`,
});

/** Checks that the client ID of the customer-managed key is that of its identity, the only parameter that names an identity. */
function clientIdFindings(context: Context, id: string, actual: string | null | undefined): Finding[] {
  const key = context.parameters.values.customerManagedKey;
  const givenClientId = isObject(key) ? key.userAssignedIdentityClientId : undefined;
  if (typeof givenClientId !== "string" || givenClientId === "" || !actual) return [];
  if (givenClientId.toLowerCase() === actual.toLowerCase()) return [];
  return [
    {
      code: "existing.clientId",
      severity: "stops",
      subject: id,
      message: `The client ID ${givenClientId} of the customer-managed key is not the one of its identity, with which App Configuration reads the key.`,
      remedy: `Set userAssignedIdentityClientId to ${actual.toLowerCase()}.`,
      command: `az identity show --ids ${quote(id)} --query clientId`,
    },
  ];
}

const listSubnets = (id: string): string =>
  `az network vnet subnet list --ids ${quote(id.split("/subnets/")[0]!)} --query '[].id'`;

/** Returns the resource ids in parameters: texts, and members of the customer-managed key and of the private DNS zones. */
function idsIn({ parameters: { values } }: Context): string[] {
  const objects: Value[] = [values.customerManagedKey, values.privateDnsZoneResourceIds];
  const members = objects.filter(isObject).flatMap((one) => Object.values(one));
  const texts = [...Object.values(values), ...members];
  return texts.filter((one): one is string => typeof one === "string" && one.startsWith("/"));
}

const delegationsOf = ({ delegations }: Subnet): string[] =>
  delegations?.map(({ properties }) => properties.serviceName) ?? [];

/** Checks the app's subnet: delegation, size and service endpoint. */
function functionSubnetFindings(_: Context, id: string, subnet: Subnet): Finding[] {
  const update = `az network vnet subnet update --ids ${quote(id)}`;
  const findings: Finding[] = [];
  if (!delegationsOf(subnet).some((one) => one.toLowerCase() === FLEX_DELEGATION.toLowerCase())) {
    findings.push({
      code: "network.delegation",
      severity: "stops",
      subject: id,
      message: `The app's subnet is not delegated to ${FLEX_DELEGATION}.`,
      remedy: "Delegate the subnet.",
      command: `${update} --delegations ${FLEX_DELEGATION}`,
    });
  }
  const prefixes = [...(subnet.addressPrefixes ?? []), ...(subnet.addressPrefix ? [subnet.addressPrefix] : [])];
  const ranges = prefixes.filter((one) => !one.includes(":"));
  if (ranges.length > 0 && ranges.every((one) => Number(one.split("/")[1]) > MAX_PREFIX_LENGTH)) {
    findings.push({
      code: "network.size",
      severity: "stops",
      subject: id,
      message: `The app's subnet is ${ranges.join(", ")}, smaller than a /${MAX_PREFIX_LENGTH}.`,
      remedy: "Enlarge the subnet, or name a larger one.",
      command: `${update} --address-prefixes ADDRESS/${MAX_PREFIX_LENGTH}`,
    });
  }
  const hasEndpoint = subnet.serviceEndpoints?.some(({ service }) => service?.toLowerCase() === "microsoft.keyvault");
  // Behind a NAT gateway, firewalls of vaults allow the gateway's address.
  if (!hasEndpoint && !subnet.natGateway?.id) {
    findings.push({
      code: "network.serviceEndpoint",
      severity: "degrades",
      subject: id,
      message:
        "The app's subnet has no service endpoint Microsoft.KeyVault, so a vault's firewall can't allow the subnet.",
      remedy: "Add the service endpoint.",
      command: `${update} --service-endpoints Microsoft.KeyVault`,
    });
  }
  return findings;
}

/** Checks the subnet of the private endpoints. */
function endpointSubnetFindings(context: Context, id: string, subnet: Subnet): Finding[] {
  const [delegation] = delegationsOf(subnet);
  if (!delegation) return [];
  return [
    {
      code: "network.delegatedEndpoints",
      severity: "stops",
      subject: id,
      message: `The subnet of the private endpoints is delegated to ${delegation}, which forbids private endpoints.`,
      remedy: `Name another subnet in ${parameterName(context, "privateEndpointSubnetResourceId")}, or remove the delegation.`,
      command: `az network vnet subnet update --ids ${quote(id)} --remove delegations`,
    },
  ];
}

const sameSubnet = (context: Context, id: string): Finding => ({
  code: "network.sameSubnet",
  severity: "stops",
  subject: id,
  message: "Both parameters name the same subnet. An app's subnet can't contain private endpoints.",
  remedy: `Name another subnet in ${parameterName(context, "privateEndpointSubnetResourceId")}.`,
  command: listSubnets(id),
});

/** The app and its private endpoints must be in the region of their network. */
async function regionFindings(context: Context, subnet: string): Promise<Finding[]> {
  const id = subnet.split("/subnets/")[0]!;
  const network = await read(context, id, NETWORK_VERSION, { operation: "read the network", resource: id }, Located);
  if (!network || network.location === context.parameters.location) return [];
  return [
    {
      code: "network.region",
      severity: "stops",
      subject: subnet,
      message: `The network is in ${network.location}, the deployment in ${context.parameters.location}.`,
      remedy: "Deploy to the region of the network, or name a network of the region.",
      command: proposeValue(context, "location", network.location),
    },
  ];
}

/** A network can be linked to one zone of each name. The templates would link their own zones. */
async function zoneFindings(context: Context, subnet: string): Promise<Finding[]> {
  const { arm, plan, group } = context;
  const planned = plan.resources
    .filter(({ type }) => type === "Microsoft.Network/privateDnsZones")
    .map(({ name }) => name);
  if (planned.length === 0) return [];
  const networkId = subnet.split("/subnets/")[0]!;
  const target = { operation: "list private DNS zones", resource: networkId };
  const path = `/subscriptions/${networkId.split("/")[2]}/providers/Microsoft.Network/privateDnsZones`;
  const list = await unlessUnregistered(
    arm.list({ path, apiVersion: ZONE_VERSION, target }, z.object({ id: z.string(), name: z.string() })),
  );
  const Link = z.object({ properties: z.object({ virtualNetwork: z.object({ id: z.string() }).nullish() }) });
  for (const zone of (list?.entries ?? []).filter(({ name }) => planned.includes(name))) {
    if (zone.id.toLowerCase().startsWith(`${group.id.toLowerCase()}/`)) continue;
    const links = await arm.list({ path: `${zone.id}/virtualNetworkLinks`, apiVersion: ZONE_VERSION, target }, Link);
    const isLinked = links.entries.some(
      ({ properties }) => properties.virtualNetwork?.id.toLowerCase() === networkId.toLowerCase(),
    );
    if (!isLinked) continue;
    return [
      {
        code: "network.zoneLinked",
        severity: "stops",
        subject: zone.id,
        message: `The network is already linked to a zone ${zone.name}. Azure permits one.`,
        remedy: `Set ${parameterName(context, "privateDnsZonesEnabled")} to false, and add the private endpoints to the existing zones.`,
        command: proposeValue(context, "privateDnsZonesEnabled", false),
      },
    ];
  }
  return [];
}
