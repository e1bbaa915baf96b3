/** The version as JSON. The build replaces this name with a string literal. */
declare const __SOURCE_VERSION__: string;

/**
 * Returns the version of the service, and the Git commit from which it was built: null if the sources differed from a commit.
 * Works only in a bundle (`infra/build/source-version.ts`).
 */
export const builtVersion = (): { version: string; commit: string | null } => JSON.parse(__SOURCE_VERSION__);
