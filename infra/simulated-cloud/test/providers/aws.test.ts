import {
  CreateSecretCommand,
  DeleteSecretCommand,
  DescribeSecretCommand,
  GetSecretValueCommand,
  ListSecretsCommand,
  PutSecretValueCommand,
  RestoreSecretCommand,
  SecretsManagerClient,
  TagResourceCommand,
  UpdateSecretVersionStageCommand,
} from "@aws-sdk/client-secrets-manager";
import { GetParameterCommand, PutParameterCommand, SSMClient } from "@aws-sdk/client-ssm";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { liveIn } from "../../../../test/azure/live-cloud.ts";
import type { Cloud } from "../../cloud.ts";

let cloud: Cloud;
let secrets: SecretsManagerClient;
let parameters: SSMClient;
let name = "";
let made = 0;
beforeAll(async () => {
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
  const options = {
    region: "eu-west-1",
    endpoint: cloud.environment.AWS_ENDPOINT_URL!,
    credentials: cloud.control.providers.aws.key,
    maxAttempts: 1,
  };
  secrets = new SecretsManagerClient(options);
  parameters = new SSMClient(options);
});
beforeEach(() => {
  name = `app/db-${++made}`;
});
afterAll(() => cloud?.stop());

const token = (letter: string) => letter.repeat(36);
const create = (value = "one", at = token("a")) =>
  secrets.send(new CreateSecretCommand({ Name: name, SecretString: value, ClientRequestToken: at }));
const put = (value: string, at: string) =>
  secrets.send(new PutSecretValueCommand({ SecretId: name, SecretString: value, ClientRequestToken: at }));
const look = () => secrets.send(new DescribeSecretCommand({ SecretId: name }));
const remove = (RecoveryWindowInDays?: number) =>
  secrets.send(new DeleteSecretCommand({ SecretId: name, ...(RecoveryWindowInDays && { RecoveryWindowInDays }) }));

/** Returns the name of the error that a client sees. */
async function refusal(work: Promise<unknown>): Promise<string> {
  return await work.then(
    () => "none",
    (error: unknown) => (error as Error).name,
  );
}

describe("a signature", () => {
  interface Signed {
    headers: Record<string, string>;
    body: string;
  }

  /** Returns a request as the SDK signed it, without sending it. */
  async function signed(): Promise<Signed> {
    let taken: Signed | undefined;
    const client = new SecretsManagerClient({
      region: "eu-west-1",
      endpoint: cloud.environment.AWS_ENDPOINT_URL!,
      credentials: cloud.control.providers.aws.key,
      maxAttempts: 1,
      requestHandler: {
        handle(request: Signed) {
          taken = { headers: { ...request.headers }, body: String(request.body) };
          return Promise.reject(new Error("not sent"));
        },
      } as never,
    });
    await refusal(
      client.send(new CreateSecretCommand({ Name: name, SecretString: "one", ClientRequestToken: token("a") })),
    );
    return taken!;
  }

  async function answerTo({ headers, body }: Signed): Promise<string> {
    const { "content-length": _length, host: _host, ...kept } = headers;
    const address = cloud.environment.AWS_ENDPOINT_URL!;
    const answer = await fetch(address, { method: "POST", headers: kept, body });
    const { __type: type = "none" } = (await answer.json()) as { __type?: string };
    return `${answer.status} ${type}`;
  }

  test("is valid as the SDK creates it", async () => {
    expect(await answerTo(await signed())).toBe("200 none");
  });

  test.each<[string, string, (request: Signed) => void]>([
    ["another body", "InvalidSignatureException", (request) => (request.body = request.body.replace("one", "two"))],
    [
      "another body and its hash",
      "InvalidSignatureException",
      (request) => {
        request.body = request.body.replace("one", "two");
        delete request.headers["x-amz-content-sha256"];
      },
    ],
    [
      "another operation",
      "InvalidSignatureException",
      ({ headers }) => (headers["x-amz-target"] = "secretsmanager.DeleteSecret"),
    ],
    [
      "a date of yesterday",
      "InvalidSignatureException",
      ({ headers }) => {
        const day = new Date(Date.now() - 86_400_000).toISOString().replace(/[-:]|\.\d{3}/g, "");
        headers.authorization = headers.authorization!.replace(/\/\d{8}\//, `/${day.slice(0, 8)}/`);
        headers["x-amz-date"] = day;
      },
    ],
    [
      "another region",
      "InvalidSignatureException",
      ({ headers }) => (headers.authorization = headers.authorization!.replace("/eu-west-1/", "/us-east-1/")),
    ],
    [
      "another service",
      "InvalidSignatureException",
      ({ headers }) => (headers.authorization = headers.authorization!.replace("/secretsmanager/", "/ssm/")),
    ],
    [
      "the operation left unsigned",
      "InvalidSignatureException",
      ({ headers }) => (headers.authorization = headers.authorization!.replace(";x-amz-target", "")),
    ],
    [
      "another key's id",
      "UnrecognizedClientException",
      ({ headers }) => (headers.authorization = headers.authorization!.replace(/=AKIA\w+\//, "=AKIA0000000000000000/")),
    ],
    ["no signature", "MissingAuthenticationTokenException", ({ headers }) => delete headers.authorization],
    ["a bearer token", "IncompleteSignatureException", ({ headers }) => (headers.authorization = "Bearer x")],
  ])("is rejected with %s", async (_, code, change) => {
    const request = await signed();
    change(request);
    expect(await answerTo(request)).toBe(`400 ${code}`);
    expect(cloud.control.providers.aws.secretsManager.history("eu-west-1", name)).toEqual([]);
  });
});

describe("Secrets Manager", () => {
  test("accepts a request token once: the same value is ignored, another value is rejected", async () => {
    await create();
    await create();
    expect(await refusal(create("two"))).toBe("ResourceExistsException");
    expect(await refusal(create("one", token("b")))).toBe("ResourceExistsException");
    await put("two", token("b"));
    await put("two", token("b"));
    expect(await refusal(put("three", token("b")))).toBe("ResourceExistsException");
    expect(cloud.control.providers.aws.secretsManager.history("eu-west-1", name)).toEqual(["one", "two"]);
  });

  test("keeps two labeled versions, and moves a label only from its current version", async () => {
    await create();
    await put("two", token("b"));
    await put("three", token("c"));
    expect((await look()).VersionIdsToStages).toEqual({ [token("b")]: ["AWSPREVIOUS"], [token("c")]: ["AWSCURRENT"] });
    const move = (MoveToVersionId: string, RemoveFromVersionId: string) =>
      secrets.send(
        new UpdateSecretVersionStageCommand({
          SecretId: name,
          VersionStage: "AWSCURRENT",
          MoveToVersionId,
          RemoveFromVersionId,
        }),
      );
    expect(await refusal(move(token("b"), token("a")))).toBe("InvalidParameterException");
    expect(await refusal(move(token("x"), token("c")))).toBe("ResourceNotFoundException");
    await move(token("b"), token("c"));
    expect((await look()).VersionIdsToStages).toEqual({ [token("b")]: ["AWSCURRENT"], [token("c")]: ["AWSPREVIOUS"] });
  });

  test("describes a deleted secret and rejects everything else except restoring it", async () => {
    await create();
    expect(await refusal(remove(6))).toBe("InvalidParameterException");
    await remove(7);
    expect((await look()).DeletedDate).toBeInstanceOf(Date);
    expect(await refusal(create())).toBe("InvalidRequestException");
    expect(await refusal(put("two", token("b")))).toBe("InvalidRequestException");
    expect(await refusal(secrets.send(new GetSecretValueCommand({ SecretId: name })))).toBe("InvalidRequestException");
    const tags = [{ Key: "a", Value: "b" }];
    expect(await refusal(secrets.send(new TagResourceCommand({ SecretId: name, Tags: tags })))).toBe(
      "InvalidRequestException",
    );
    await secrets.send(new RestoreSecretCommand({ SecretId: name }));
    await put("two", token("b"));
  });

  test("deletes a secret immediately only on request", async () => {
    await create();
    await secrets.send(new DeleteSecretCommand({ SecretId: name, ForceDeleteWithoutRecovery: true }));
    expect(await refusal(look())).toBe("ResourceNotFoundException");
  });

  test("rejects reserved tags and values over 64 KiB", async () => {
    await create();
    const tags = [{ Key: "aws:owner", Value: "me" }];
    const tagging = secrets.send(new TagResourceCommand({ SecretId: name, Tags: tags }));
    expect(await refusal(tagging)).toBe("InvalidParameterException");
    expect(await refusal(put("x".repeat(65_537), token("b")))).toBe("ValidationException");
  });

  test("lists in pages", async () => {
    await create();
    const first = await secrets.send(new ListSecretsCommand({ MaxResults: 1 }));
    expect(first.SecretList).toHaveLength(1);
    expect(await refusal(secrets.send(new ListSecretsCommand({ NextToken: "x" })))).toBe("InvalidNextTokenException");
  });
});

describe("Parameter Store", () => {
  const write = (change: object) =>
    parameters.send(new PutParameterCommand({ Name: `/${name}`, Value: "one", Type: "SecureString", ...change }));

  test("overwrites only on request, and then accepts no tags", async () => {
    await write({});
    expect(await refusal(write({}))).toBe("ParameterAlreadyExists");
    expect(await refusal(write({ Overwrite: true, Tags: [{ Key: "a", Value: "b" }] }))).toBe("ValidationException");
    expect((await write({ Overwrite: true, Value: "two" })).Version).toBe(2);
  });

  test("returns a value in plain text only if the client asks for decryption", async () => {
    await write({});
    const read = (WithDecryption: boolean) =>
      parameters.send(new GetParameterCommand({ Name: `/${name}`, WithDecryption }));
    expect((await read(false)).Parameter?.Value).not.toBe("one");
    expect((await read(true)).Parameter?.Value).toBe("one");
  });

  test("rejects parameters that are not standard parameters", async () => {
    expect(await refusal(write({ Value: "x".repeat(4097) }))).toBe("ValidationException");
    expect(await refusal(write({ Name: "/aws/x" }))).toBe("ValidationException");
    expect(await refusal(write({ Name: "/x".repeat(16) }))).toBe("HierarchyLevelLimitExceededException");
  });
});
