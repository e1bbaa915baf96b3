import { randomBytes } from "node:crypto";
import { AppConfiguration } from "../app-configuration.ts";
import type { Incoming, Operation, Service } from "../http.ts";
import type { Tokens } from "../tokens.ts";
import { type ArmResource, type ArmStore, configurationHost } from "./resource-store.ts";

/** Serves the key-values of the company's App Configuration stores, each store at its own host. */
export class ConfigurationStores {
  readonly #store: ArmStore;
  readonly #tokens: Tokens;
  readonly #made = new Map<ArmResource, AppConfiguration>();

  constructor(store: ArmStore, tokens: Tokens) {
    this.#store = store;
    this.#tokens = tokens;
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

  #operation(resource: ArmResource, request: Incoming): Operation | undefined {
    const made = this.#made.get(resource) ?? this.#make(resource);
    const operation = made.service(request);
    if (operation === undefined) return undefined;
    const denied = resource.denied && !operation.anonymous ? { answer: operation.refusals.denied } : {};
    return { ...operation, ...denied, resource: resource.id };
  }

  #make(resource: ArmResource): AppConfiguration {
    const made = new AppConfiguration(resource.name, randomBytes(32), this.#tokens);
    for (const { key, value, label = null, contentType = null } of resource.keyValues) {
      made.set(key, value, label, contentType);
    }
    this.#made.set(resource, made);
    return made;
  }
}
