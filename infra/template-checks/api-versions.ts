import type { BicepFile } from "./bicep/parse.ts";
import type { Finding } from "./expression.ts";

// Checks that templates and documentation use no retired version of the Azure Resource Manager API. `checkInfra` runs it.

/** The versions of a resource provider that Azure retires. */
interface RetiredVersions {
  /** Namespace of the resource provider. */
  provider: string;
  /** First supported version. Earlier versions are retired. */
  earliest: string;
  /** Date from which requests with an earlier version fail. */
  retiredOn: string;
  /** URL of the announcement. */
  source: string;
}

const RETIRED_VERSIONS: readonly RetiredVersions[] = [
  {
    provider: "Microsoft.KeyVault",
    earliest: "2026-02-01",
    retiredOn: "2027-02-27",
    source: "https://learn.microsoft.com/azure/key-vault/general/migrate-api-version",
  },
];

/** A resource type with its version, for example `Microsoft.KeyVault/vaults@2026-02-01`. */
const TYPE_AND_VERSION = /\b(\w+\.\w+)((?:\/\w+)+)@(\d{4}-\d{2}-\d{2}(?:-\w+)?)/g;

/** Returns a message for each `type@version` in the text whose version is in RETIRED_VERSIONS. */
export function retiredVersionsIn(text: string): string[] {
  return [...text.matchAll(TYPE_AND_VERSION)].flatMap(([, provider, type, version]) =>
    retiredVersion(`${provider}${type}`, version!),
  );
}

/** Checks the resources of the Bicep files. */
export function checkApiVersions(files: Iterable<BicepFile>): Finding[] {
  return [...files].flatMap(({ path, resources }) =>
    resources.flatMap(({ type, version, line }) =>
      retiredVersion(type, version).map((message) => ({ file: path, line, message })),
    ),
  );
}

function retiredVersion(type: string, version: string): string[] {
  return RETIRED_VERSIONS.filter(
    ({ provider, earliest }) => type.toLowerCase().startsWith(`${provider.toLowerCase()}/`) && version < earliest,
  ).map(
    ({ earliest, retiredOn, source }) =>
      `${type}@${version} is retired on ${retiredOn}: use ${earliest} or later (${source})`,
  );
}
