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
import { startTestCloud } from "../../../../test/azure/live-cloud.ts";
import type { Cloud } from "../../cloud.ts";

// Tests AWS Secrets Manager and Systems Manager Parameter Store in the simulated cloud with the AWS SDK.

let cloud: Cloud;
let secrets: SecretsManagerClient;
let parameters: SSMClient;
/** Name of the secret or parameter of the current test. */
let name = "";
let testCount = 0;
beforeAll(async () => {
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
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
  name = `app/db-${++testCount}`;
});
afterAll(() => cloud?.stop());

/** Returns a request token of 36 characters. AWS also uses it as the version ID. */
const requestToken = (letter: string) => letter.repeat(36);
const create = (value = "one", clientToken = requestToken("a")) =>
  secrets.send(new CreateSecretCommand({ Name: name, SecretString: value, ClientRequestToken: clientToken }));
const putValue = (value: string, clientToken: string) =>
  secrets.send(new PutSecretValueCommand({ SecretId: name, SecretString: value, ClientRequestToken: clientToken }));
const describeSecret = () => secrets.send(new DescribeSecretCommand({ SecretId: name }));
const remove = (RecoveryWindowInDays?: number) =>
  secrets.send(new DeleteSecretCommand({ SecretId: name, ...(RecoveryWindowInDays && { RecoveryWindowInDays }) }));

/** Returns the name of the error with which a call fails, or "none". */
async function errorNameOf(work: Promise<unknown>): Promise<string> {
  return await work.then(
    () => "none",
    (error: unknown) => (error as Error).name,
  );
}

describe("a signature", () => {
  interface SignedRequest {
    headers: Record<string, string>;
    body: string;
  }

  /** Returns a request as the SDK signed it, without sending it. */
  async function signRequest(): Promise<SignedRequest> {
    let captured: SignedRequest | undefined;
    const client = new SecretsManagerClient({
      region: "eu-west-1",
      endpoint: cloud.environment.AWS_ENDPOINT_URL!,
      credentials: cloud.control.providers.aws.key,
      maxAttempts: 1,
      requestHandler: {
        handle(request: SignedRequest) {
          captured = { headers: { ...request.headers }, body: String(request.body) };
          return Promise.reject(new Error("not sent"));
        },
      } as never,
    });
    await errorNameOf(
      client.send(new CreateSecretCommand({ Name: name, SecretString: "one", ClientRequestToken: requestToken("a") })),
    );
    return captured!;
  }

  async function send({ headers, body }: SignedRequest): Promise<string> {
    const { "content-length": _length, host: _host, ...sentHeaders } = headers;
    const address = cloud.environment.AWS_ENDPOINT_URL!;
    const answer = await fetch(address, { method: "POST", headers: sentHeaders, body });
    const { __type: type = "none" } = (await answer.json()) as { __type?: string };
    return `${answer.status} ${type}`;
  }

  test("is accepted if the request is unchanged", async () => {
    expect(await send(await signRequest())).toBe("200 none");
  });

  test.each<[string, string, (request: SignedRequest) => void]>([
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
        const yesterday = new Date(Date.now() - 86_400_000).toISOString().replace(/[-:]|\.\d{3}/g, "");
        headers.authorization = headers.authorization!.replace(/\/\d{8}\//, `/${yesterday.slice(0, 8)}/`);
        headers["x-amz-date"] = yesterday;
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
  ])("is rejected for a request with %s", async (_, code, change) => {
    const request = await signRequest();
    change(request);
    expect(await send(request)).toBe(`400 ${code}`);
    expect(cloud.control.providers.aws.secretsManager.history("eu-west-1", name)).toEqual([]);
  });
});

describe("Secrets Manager", () => {
  test("ignores a repeated request with the same token and value, and rejects the token with another value", async () => {
    await create();
    await create();
    expect(await errorNameOf(create("two"))).toBe("ResourceExistsException");
    expect(await errorNameOf(create("one", requestToken("b")))).toBe("ResourceExistsException");
    await putValue("two", requestToken("b"));
    await putValue("two", requestToken("b"));
    expect(await errorNameOf(putValue("three", requestToken("b")))).toBe("ResourceExistsException");
    expect(cloud.control.providers.aws.secretsManager.history("eu-west-1", name)).toEqual(["one", "two"]);
  });

  test("moves a version label only if the request names the version that has the label", async () => {
    // The first version gets the token `a…` as its ID.
    await create();
    await putValue("two", requestToken("b"));
    await putValue("three", requestToken("c"));
    expect((await describeSecret()).VersionIdsToStages).toEqual({
      [requestToken("b")]: ["AWSPREVIOUS"],
      [requestToken("c")]: ["AWSCURRENT"],
    });
    const moveLabel = (MoveToVersionId: string, RemoveFromVersionId: string) =>
      secrets.send(
        new UpdateSecretVersionStageCommand({
          SecretId: name,
          VersionStage: "AWSCURRENT",
          MoveToVersionId,
          RemoveFromVersionId,
        }),
      );
    expect(await errorNameOf(moveLabel(requestToken("b"), requestToken("a")))).toBe("InvalidParameterException");
    expect(await errorNameOf(moveLabel(requestToken("x"), requestToken("c")))).toBe("ResourceNotFoundException");
    await moveLabel(requestToken("b"), requestToken("c"));
    expect((await describeSecret()).VersionIdsToStages).toEqual({
      [requestToken("b")]: ["AWSCURRENT"],
      [requestToken("c")]: ["AWSPREVIOUS"],
    });
  });

  test("rejects most calls for a deleted secret until it is restored", async () => {
    await create();
    expect(await errorNameOf(remove(6))).toBe("InvalidParameterException");
    await remove(7);
    expect((await describeSecret()).DeletedDate).toBeInstanceOf(Date);
    expect(await errorNameOf(create())).toBe("InvalidRequestException");
    expect(await errorNameOf(putValue("two", requestToken("b")))).toBe("InvalidRequestException");
    expect(await errorNameOf(secrets.send(new GetSecretValueCommand({ SecretId: name })))).toBe(
      "InvalidRequestException",
    );
    const tags = [{ Key: "a", Value: "b" }];
    expect(await errorNameOf(secrets.send(new TagResourceCommand({ SecretId: name, Tags: tags })))).toBe(
      "InvalidRequestException",
    );
    await secrets.send(new RestoreSecretCommand({ SecretId: name }));
    await putValue("two", requestToken("b"));
  });

  test("deletes a secret immediately only on request", async () => {
    await create();
    await secrets.send(new DeleteSecretCommand({ SecretId: name, ForceDeleteWithoutRecovery: true }));
    expect(await errorNameOf(describeSecret())).toBe("ResourceNotFoundException");
  });

  test("rejects reserved tags and values over 64 KiB", async () => {
    await create();
    const tags = [{ Key: "aws:owner", Value: "me" }];
    const tagging = secrets.send(new TagResourceCommand({ SecretId: name, Tags: tags }));
    expect(await errorNameOf(tagging)).toBe("InvalidParameterException");
    expect(await errorNameOf(putValue("x".repeat(65_537), requestToken("b")))).toBe("ValidationException");
  });

  test("lists secrets in pages", async () => {
    await create();
    const first = await secrets.send(new ListSecretsCommand({ MaxResults: 1 }));
    expect(first.SecretList).toHaveLength(1);
    expect(await errorNameOf(secrets.send(new ListSecretsCommand({ NextToken: "x" })))).toBe(
      "InvalidNextTokenException",
    );
  });
});

describe("Parameter Store", () => {
  const putParameter = (change: object) =>
    parameters.send(new PutParameterCommand({ Name: `/${name}`, Value: "one", Type: "SecureString", ...change }));

  test("overwrites a parameter only on request, and then accepts no tags", async () => {
    await putParameter({});
    expect(await errorNameOf(putParameter({}))).toBe("ParameterAlreadyExists");
    expect(await errorNameOf(putParameter({ Overwrite: true, Tags: [{ Key: "a", Value: "b" }] }))).toBe(
      "ValidationException",
    );
    expect((await putParameter({ Overwrite: true, Value: "two" })).Version).toBe(2);
  });

  test("returns a value in plain text only if the client asks for decryption", async () => {
    await putParameter({});
    const read = (WithDecryption: boolean) =>
      parameters.send(new GetParameterCommand({ Name: `/${name}`, WithDecryption }));
    expect((await read(false)).Parameter?.Value).not.toBe("one");
    expect((await read(true)).Parameter?.Value).toBe("one");
  });

  test("rejects values, names and paths beyond the limits of standard parameters", async () => {
    expect(await errorNameOf(putParameter({ Value: "x".repeat(4097) }))).toBe("ValidationException");
    expect(await errorNameOf(putParameter({ Name: "/aws/x" }))).toBe("ValidationException");
    expect(await errorNameOf(putParameter({ Name: "/x".repeat(16) }))).toBe("HierarchyLevelLimitExceededException");
  });
});
