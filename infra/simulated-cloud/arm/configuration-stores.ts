import { AppConfiguration } from "../app-configuration.ts";
import type { IncomingRequest, Operation, Service } from "../http.ts";
import type { Tokens } from "../tokens.ts";
import { configurationKeyId } from "./key-kinds.ts";
import type { ResourceKeys } from "./resource-keys.ts";
import { type ArmResource, type ArmStore, configurationHost } from "./resource-store.ts";

/** Simulates the App Configuration stores among the company's resources. Each store serves its key-values at its own host. */
export class ConfigurationStores {
  readonly #store: ArmStore;
  readonly #tokens: Tokens;
  readonly #keys: ResourceKeys;
  readonly #services = new Map<ArmResource, AppConfiguration>();

  constructor(store: ArmStore, tokens: Tokens, keys: ResourceKeys) {
    this.#store = store;
    this.#tokens = tokens;
    this.#keys = keys;
  }

  /** Returns the store with this host. Undefined if there is none. */
  service(host: string): Service | undefined {
    if (!host.endsWith(".azconfig.localhost")) return undefined;
    for (const resource of this.#store.all()) {
      if (resource.type.noun === "ConfigurationStore" && configurationHost(resource.name) === host) {
        return (request) => this.#operation(resource, request);
      }
    }
    return undefined;
  }

  #operation(resource: ArmResource, request: IncomingRequest): Operation | undefined {
    const store = this.#services.get(resource) ?? this.#createService(resource);
    const operation = store.service(request);
    if (operation === undefined) return undefined;
    // A request to a denied store gets a 403, unless its credentials are invalid: the store itself reports that.
    const override = resource.denied && !operation.anonymous ? { answer: operation.errorResponses.denied } : {};
    return { ...operation, ...override, resource: resource.id };
  }

  #createService(resource: ArmResource): AppConfiguration {
    // Read-only keys can read only, which is all that a store's clients do here.
    const keyOf = (credential: string) => {
      const keys = Object.entries(this.#keys.accepted(resource));
      const [, value] = keys.find(([key]) => configurationKeyId(resource.name, key) === credential) ?? [];
      return value === undefined ? undefined : Buffer.from(value, "base64");
    };
    const store = new AppConfiguration(keyOf, this.#tokens);
    for (const { key, value, label = null, contentType = null } of resource.keyValues) {
      store.set(key, value, label, contentType);
    }
    this.#services.set(resource, store);
    return store;
  }
}
