import * as z from "zod";
import { type KeyTest, testConfigurationKey } from "../../platform/azure/app-configuration-key.ts";
import type { Arm } from "../../platform/azure/arm.ts";
import { parseResourceId, resourceName, resourcePath } from "../../platform/azure/resource-id.ts";
import type { CloudEndpoints } from "../../platform/config/clouds.ts";
import { guardedHttpClient } from "../../platform/outgoing/guarded-http-client.ts";
import { createOutgoing, type Outgoing, Unreachable } from "../../platform/outgoing/outgoing.ts";
import { SECOND_MS } from "../../platform/time.ts";
import { authorize, type KeyRequest } from "./key-requests.ts";
import type { KeyKind, KeyProof, KeyScheme, ListedKey } from "./kinds.ts";

/**
 * Tests a key with a read-only request to the resource.
 *
 * @param control - The other key of the pair, as the resource lists it: sent only if the resource refuses `key`.
 * @throws {CloudFailure} if Azure Resource Manager does not return the address of the resource.
 */
export type TestKey = (id: string, kind: KeyKind, key: ListedKey, control: ListedKey | undefined) => Promise<KeyTest>;

const LIMITS = { timeoutMs: 20 * SECOND_MS, maxAnswerBytes: 64 * 1024 };

const resource = z.object({ name: z.string().min(1), properties: z.record(z.string(), z.unknown()).default({}) });

type HttpsProof = Extract<KeyProof, { by: "https" }>;
type Cloud = Pick<CloudEndpoints, "resourceDomains" | "appConfigurationSuffix" | "maps">;

/**
 * Creates the function that tests keys. A request with a key is sent only to an address that Azure Resource Manager returns for
 * the resource and that is in a domain of the cloud. No row, tag or request of a user contains an address.
 */
export function createKeyTest(arm: Arm, cloud: Cloud): TestKey {
  const outgoing = createOutgoing({
    ...LIMITS,
    // The domain limits the hosts. Resources with private endpoints have private addresses, and TLS proves the name.
    allowedNetwork: () => "named",
    plainHttp: () => false,
    remedy: "The address of an Azure resource must not be one of the platform.",
  });
  const httpClient = guardedHttpClient(outgoing);

  /** Returns the resource as Azure Resource Manager has it. Of a rule, its namespace. */
  const read = (id: string, kind: KeyKind) => {
    // A resource ID has nine segments up to the first name.
    const owner = id.split("/").slice(0, 9).join("/");
    const type = kind.type.split("/").slice(0, 2).join("/").toLowerCase();
    const target = {
      operation: "read the address",
      resource: `${kind.title} ${resourceName(id)}`,
      grant: kind.actions[0]!,
    };
    return arm.call({ path: resourcePath(owner, type), apiVersion: kind.apiVersion, target }, resource);
  };

  /** Returns the address for a proof, and the name of the account. Undefined without an address in the cloud's domains. */
  async function addressFor(
    id: string,
    kind: KeyKind,
    { address, domains }: HttpsProof,
  ): Promise<{ base: URL; account: string } | undefined> {
    if (address === undefined || domains === undefined) {
      return cloud.maps === undefined ? undefined : { base: new URL(cloud.maps), account: resourceName(id) };
    }
    const { name, properties } = await read(id, kind);
    const base = allowedAddress(memberOf(properties, address), cloud.resourceDomains[domains]);
    return base && { base, account: name };
  }

  async function testByHttps(id: string, kind: KeyKind, proof: HttpsProof, keys: Keys): Promise<KeyTest> {
    const found = await addressFor(id, kind, proof);
    if (found === undefined) return "unclear";
    const names = parseResourceId(id)!.names;
    const [rule, entity] = [names.at(-1)!, names.length > 2 ? names.at(-2)! : ""];
    const url = new URL(proof.path.replace("{entity}", encodeURIComponent(entity)), found.base);
    const request = { method: proof.method, url, account: found.account, rule };
    return await withControl(keys, async ({ value }) =>
      resultOf(proof, await send(outgoing, proof.scheme, { ...request, key: value, now: new Date() })),
    );
  }

  async function testConfiguration(id: string, kind: KeyKind, keys: Keys): Promise<KeyTest> {
    const { properties } = await read(id, kind);
    const endpoint = allowedAddress(properties.endpoint, [cloud.appConfigurationSuffix]);
    if (endpoint === undefined) return "unclear";
    return await withControl(keys, (key) => testConfigurationKey(httpClient, endpoint.origin, key));
  }

  return async (id, kind, key, control) => {
    const { proof } = kind;
    if (proof.by === "list") return "unclear";
    const keys = { key, control };
    return proof.by === "https" ? await testByHttps(id, kind, proof, keys) : await testConfiguration(id, kind, keys);
  };
}

interface Keys {
  key: ListedKey;
  control: ListedKey | undefined;
}

/**
 * Returns the result for the key. The resource refuses a valid key too if its firewall blocks the request, keys are disabled, or
 * the key lacks a right. Then it also refuses the other key, and the result is `unclear`. If the other key gets no clear answer,
 * the result stays `rejected`, so that the test is repeated.
 */
async function withControl({ key, control }: Keys, test: (key: ListedKey) => Promise<KeyTest>): Promise<KeyTest> {
  const result = await test(key);
  if (result !== "rejected") return result;
  return control === undefined || (await test(control)) === "rejected" ? "unclear" : "rejected";
}

/** Returns the member of an object at a path of names. */
const memberOf = (object: unknown, path: string): unknown =>
  path.split(".").reduce((value, name) => (value as Record<string, unknown> | undefined)?.[name], object);

/**
 * Returns an address that a request with a key may be sent to. Undefined for any other.
 *
 * @param address - An address or a host, as Azure Resource Manager returns it.
 */
function allowedAddress(address: unknown, domains: readonly string[]): URL | undefined {
  if (typeof address !== "string" || address === "") return undefined;
  const text = address.includes("://") ? address : `https://${address}`;
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  const isAllowed = url.protocol === "https:" && domains.some((domain) => url.hostname.endsWith(`.${domain}`));
  return isAllowed && url.username === "" && url.password === "" ? url : undefined;
}

/** Returns the status of the response. Undefined without a response in time, or if the guard blocks the address. */
async function send(outgoing: Outgoing, scheme: KeyScheme, request: KeyRequest): Promise<number | undefined> {
  const headers = await authorize(scheme, request);
  try {
    return (await outgoing.send(request.url.href, { method: request.method, headers })).status;
  } catch (error) {
    if (error instanceof Unreachable) return undefined;
    throw error;
  }
}

function resultOf({ accepted, refused }: HttpsProof, status: number | undefined): KeyTest {
  if (status === undefined) return "unclear";
  if (accepted.includes(status)) return "accepted";
  return refused.includes(status) ? "rejected" : "unclear";
}
