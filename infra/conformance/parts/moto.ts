import path from "node:path";
import {
  CreateSecretCommand,
  DeleteSecretCommand,
  DescribeSecretCommand,
  GetSecretValueCommand,
  ListSecretVersionIdsCommand,
  PutSecretValueCommand,
  SecretsManagerClient,
} from "@aws-sdk/client-secrets-manager";
import {
  DeleteParameterCommand,
  GetParameterHistoryCommand,
  ListTagsForResourceCommand,
  PutParameterCommand,
  SSMClient,
} from "@aws-sdk/client-ssm";
import { caseRunner, type Part } from "../part.ts";
import { pythonEnvironment } from "../python.ts";
import { freePort, startServer } from "../servers.ts";
import { Copy, configure, rotateSource, sourceValue, startSync, type Target } from "../sync.ts";

// Sync to AWS Secrets Manager and Parameter Store, simulated by moto in server mode.

const REGION = "eu-west-1";
const KEY = { accessKeyId: "AKIAIOSFODNN7EXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" };

/** A store for secrets of AWS, with the operations that the cases need. They call AWS's own SDK, not the service. */
interface Store {
  service: string;
  /** A name that is not used yet. */
  name(): string;
  /** Writes a version without the service, as another person would. */
  write(name: string, value: string): Promise<unknown>;
  delete(name: string): Promise<unknown>;
  /** The current value, undefined if there is none. */
  value(name: string): Promise<string | undefined>;
  countVersions(name: string): Promise<number>;
  tags(name: string): Promise<{ Key?: string; Value?: string }[]>;
}

export const part: Part = {
  name: "moto",
  description: "sync copies secrets to AWS Secrets Manager and Parameter Store",
  programs: ["moto"],
  needs: ["python"],
  limits: [
    "moto accepts any credentials and permissions.",
    "moto's GetSecretValue without a stage returns the newest version, not the one with the stage AWSCURRENT. The cases ask for that stage.",
  ],
  async *run() {
    const port = await freePort();
    const endpoint = `http://127.0.0.1:${port}`;
    const command = [path.join(pythonEnvironment(), "moto_server"), "-H", "127.0.0.1", "-p", String(port)] as const;
    const stopMoto = await startServer(command, {}, () => fetch(endpoint));
    try {
      const service = await startSync({ AWS_ENDPOINT_URL: endpoint });
      try {
        const runCase = caseRunner("moto");
        yield await runCase("configuration", "configured", () => configure(service, "aws", { ...KEY, region: REGION }));
        const options = { endpoint, region: REGION, credentials: KEY };
        for (const store of [secretsManager(options), parameterStore(options)]) {
          const caseName = (name: string) => `${store.service}: ${name}`;
          const target = (): Target => ({
            targetProvider: "aws",
            targetService: store.service,
            targetName: store.name(),
          });
          /** Compares the value in AWS with an expected one. */
          const compareValue = async (name: string, expected: string) => {
            const value = await store.value(name);
            return value === expected ? "the value" : value === undefined ? "no value" : "another value";
          };
          /** Compares the value in AWS with that of the source in Key Vault. */
          const compareWithSource = (name: string) => compareValue(name, sourceValue(service));

          const first = target();
          const name = first.targetName;
          let copy: Copy;
          yield await runCase(caseName("a secret is copied"), "inSync, the value", async () => {
            copy = await Copy.create(service, first);
            return `${await copy.state()}, ${await compareWithSource(name)}`;
          });
          yield await runCase(caseName("tags name the owner"), "credential-lifecycle", async () => {
            const tags = await store.tags(name);
            return tags.find(({ Key }) => Key === "managed-by")?.Value ?? "no tag";
          });
          yield await runCase(caseName("a second run writes nothing"), "inSync, 1 version", async () => {
            const state = await copy.sync();
            return `${state}, ${await store.countVersions(name)} version`;
          });
          yield await runCase(caseName("a new version of the source is copied"), "inSync, the value", async () => {
            rotateSource(service, `rotated for ${store.service}`);
            return `${await copy.sync()}, ${await compareWithSource(name)}`;
          });
          yield await runCase(caseName("changed by hand: restored"), "changed, inSync, the value", async () => {
            await store.write(name, "by hand");
            const before = (await compareValue(name, "by hand")) === "the value" ? "changed" : "not changed";
            return `${before}, ${await copy.sync()}, ${await compareWithSource(name)}`;
          });
          yield await runCase(caseName("deleted by hand: created again"), "no value, inSync, the value", async () => {
            await store.delete(name);
            return `${await compareWithSource(name)}, ${await copy.sync()}, ${await compareWithSource(name)}`;
          });
          yield await runCase(
            caseName("belongs to somebody else: not overwritten"),
            "failing targetNotOwned, the value",
            async () => {
              const foreign = target();
              await store.write(foreign.targetName, "theirs");
              const state = await (await Copy.create(service, foreign)).state();
              return `${state}, ${await compareValue(foreign.targetName, "theirs")}`;
            },
          );
          yield await runCase(caseName("record deleted with its copy"), "removed, no value", async () => {
            return `${await copy.remove()}, ${await compareWithSource(name)}`;
          });
        }
      } finally {
        await service.stop();
      }
    } finally {
      await stopMoto();
    }
  },
};

interface Options {
  endpoint: string;
  region: string;
  credentials: typeof KEY;
}

/** Returns undefined if the work fails with one of the errors with which AWS reports that something does not exist. */
const unlessMissing = <T>(work: Promise<T>): Promise<T | undefined> =>
  work.catch((error: Error) => {
    if (/NotFound|InvalidRequest/.test(error.name)) return undefined;
    throw error;
  });

function secretsManager(options: Options): Store {
  const client = new SecretsManagerClient(options);
  let names = 0;
  return {
    service: "secretsmanager",
    name: () => `shop/copy${++names}`,
    async write(SecretId, SecretString) {
      const exists = await unlessMissing(client.send(new DescribeSecretCommand({ SecretId })));
      if (exists) return await client.send(new PutSecretValueCommand({ SecretId, SecretString }));
      return await client.send(new CreateSecretCommand({ Name: SecretId, SecretString }));
    },
    delete: (SecretId) => client.send(new DeleteSecretCommand({ SecretId })),
    value: async (SecretId) =>
      (await unlessMissing(client.send(new GetSecretValueCommand({ SecretId, VersionStage: "AWSCURRENT" }))))
        ?.SecretString,
    countVersions: async (SecretId) =>
      (await client.send(new ListSecretVersionIdsCommand({ SecretId, IncludeDeprecated: true }))).Versions?.length ?? 0,
    tags: async (SecretId) => (await client.send(new DescribeSecretCommand({ SecretId }))).Tags ?? [],
  };
}

function parameterStore(options: Options): Store {
  const client = new SSMClient(options);
  let names = 0;
  const history = async (Name: string) =>
    (await unlessMissing(client.send(new GetParameterHistoryCommand({ Name, WithDecryption: true }))))?.Parameters ??
    [];
  return {
    service: "parameterstore",
    name: () => `/shop/copy${++names}`,
    write: (Name, Value) =>
      client.send(new PutParameterCommand({ Name, Value, Type: "SecureString", Overwrite: true })),
    delete: (Name) => client.send(new DeleteParameterCommand({ Name })),
    value: async (name) => {
      const current = (await history(name)).at(-1);
      if (current && current.Type !== "SecureString") throw new Error(`The parameter is a ${current.Type}.`);
      return current?.Value;
    },
    countVersions: async (name) => (await history(name)).length,
    tags: async (ResourceId) =>
      (await client.send(new ListTagsForResourceCommand({ ResourceType: "Parameter", ResourceId }))).TagList ?? [],
  };
}
