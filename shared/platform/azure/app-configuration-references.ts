import * as z from "zod";
import { systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, createSender } from "./calls.ts";
import { type CallTarget, foreignHost } from "./failure.ts";
import type { CloudServices } from "./key-vault.ts";

/** A key-value of an App Configuration store that references a key vault secret. */
export interface ConfigurationReference {
  key: string;
  label?: string;
  /** Address of the secret as stored. Undefined if the value is not a valid reference. */
  uri: string | undefined;
}

/** Finds the key-values of App Configuration stores that reference key vault secrets. Values of other keys are discarded. */
export interface AppConfigurationReferences {
  /**
   * @param endpoint - The store's endpoint, as the resource manager returns it.
   * @throws {CloudFailure} foreignHost if the endpoint is not https under the cloud's App Configuration domain; timedOut when
   * the signal is aborted.
   */
  list(endpoint: string, signal?: AbortSignal): Promise<ConfigurationReference[]>;
}

/** https://learn.microsoft.com/azure/azure-app-configuration/rest-api-key-value */
const API_VERSION = "2023-11-01";

/** https://learn.microsoft.com/azure/azure-app-configuration/use-key-vault-references-dotnet-core */
const REFERENCE_TYPE = /^application\/vnd\.microsoft\.appconfig\.keyvaultref\+json\b/i;

const answer = z.object({
  items: z.array(
    z.object({
      key: z.string(),
      label: z.string().nullish(),
      content_type: z.string().nullish(),
      value: z.string().nullish(),
    }),
  ),
  "@nextLink": z.string().nullish(),
});

const referenceValue = z.object({ uri: z.string() });

export function createAppConfigurationReferences({
  config,
  identity,
  log,
  randomness = systemRandomness(),
  limits,
}: CloudServices): AppConfigurationReferences {
  const suffix = config.cloud.appConfigurationSuffix;

  return {
    async list(endpoint, signal) {
      const { protocol, hostname, origin } = URL.canParse(endpoint) ? new URL(endpoint) : INVALID_ADDRESS;
      const resource = `App Configuration ${hostname.split(".")[0]!.slice(0, 50)}`;
      const target: CallTarget = {
        operation: "list the key-values",
        resource,
        grant: "the role App Configuration Data Reader on the store",
      };
      if (protocol !== "https:" || !hostname.endsWith(`.${suffix}`)) throw foreignHost(target, origin);
      const send = await createSender({
        origin,
        scope: `https://${suffix}/.default`,
        identity,
        route: (path) => (path === "/kv" ? { target, answer, paged: true } : undefined),
        resource,
        signal,
        log,
        randomness,
        limits: { ...CALL_LIMITS, ...limits },
      });
      const references: ConfigurationReference[] = [];
      const query = new URLSearchParams({ "api-version": API_VERSION, key: "*", label: "*" });
      let next: string | undefined = `/kv?${query}&$Select=key,label,content_type,value`;
      while (next) {
        const { items, "@nextLink": link } = answer.parse(await send({ url: new URL(next, origin).href }));
        for (const { key, label, content_type: type, value } of items) {
          if (REFERENCE_TYPE.test(type ?? "")) references.push({ key, ...(label && { label }), uri: readUri(value) });
        }
        next = link || undefined;
      }
      return references;
    },
  };
}

/** Stands for an endpoint that is no URL. Its empty protocol fails the check, so no request is sent. */
const INVALID_ADDRESS = { protocol: "", hostname: "", origin: "an invalid address" };

function readUri(value: string | null | undefined): string | undefined {
  try {
    return referenceValue.safeParse(JSON.parse(value ?? "")).data?.uri;
  } catch {
    return undefined; // The value is not JSON. Users can store any text.
  }
}
