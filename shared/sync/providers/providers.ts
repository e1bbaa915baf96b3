import { aws } from "./aws/provider.ts";
import { azure } from "./azure/provider.ts";
import { github } from "./github/provider.ts";
import { google } from "./google/provider.ts";
import { hashicorp } from "./hashicorp/provider.ts";
import { kubernetes } from "./kubernetes/provider.ts";
import type { ProviderDefinition } from "./provider.ts";

export type AnyProvider = ProviderDefinition<Record<string, unknown>, Record<string, unknown>>;

/** Everything that can be a target. Another one is a folder beside this file and a line here. */
export const PROVIDERS: readonly AnyProvider[] = [azure, aws, hashicorp, google, github, kubernetes].map(
  (provider) => provider as AnyProvider,
);

/** Undefined when there is none of that name. */
export const providerOf = (id: string): AnyProvider | undefined => PROVIDERS.find((provider) => provider.id === id);
