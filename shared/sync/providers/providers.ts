import { aws } from "./aws/provider.ts";
import { azure } from "./azure/provider.ts";
import { github } from "./github/provider.ts";
import { google } from "./google/provider.ts";
import { hashicorp } from "./hashicorp/provider.ts";
import { kubernetes } from "./kubernetes/provider.ts";
import type { ProviderDefinition } from "./provider.ts";

/** A provider whose settings and secrets have any type. */
export type AnyProvider = ProviderDefinition<Record<string, unknown>, Record<string, unknown>>;

/** All providers. To add one, create a folder beside this file and add a line here. */
export const PROVIDERS: readonly AnyProvider[] = [azure, aws, hashicorp, google, github, kubernetes].map(
  (provider) => provider as AnyProvider,
);

/** Returns undefined for an unknown provider. */
export const providerOf = (id: string): AnyProvider | undefined => PROVIDERS.find((provider) => provider.id === id);
