import { type IncomingRequest, jsonObject, type Operation, type ServiceResponse } from "../../http.ts";
import { AwsError, awsAnswer, awsErrorResponses, awsFailure } from "./errors.ts";
import { ParameterStore } from "./parameter-store.ts";
import { SecretsManager } from "./secrets-manager.ts";
import { type AccessKey, verifySignature } from "./signature.ts";

/** Simulates Amazon Web Services: one account with one access key, and all regions at one address. */
export class Aws {
  readonly key: AccessKey;
  readonly secretsManager = new SecretsManager();
  readonly parameterStore = new ParameterStore();

  constructor(key: AccessKey) {
    this.key = key;
  }

  readonly service = (request: IncomingRequest): Operation | undefined => {
    const target = /^(secretsmanager|AmazonSSM)\.(\w+)$/.exec(String(request.headers["x-amz-target"] ?? ""));
    if (request.method !== "POST" || request.path !== "/" || !target) return undefined;
    const [service, name] = [target[1] === "AmazonSSM" ? "ssm" : "secretsmanager", target[2]!];
    const signature = verifySignature(request, this.key, service);
    const body = jsonObject(request) ?? {};
    // Parameter Store tags a parameter by its `ResourceId`, which is the name.
    const item = body.SecretId ?? body.Name ?? body.ResourceId;
    const answer = (): ServiceResponse => {
      if ("code" in signature) return awsFailure(signature);
      try {
        const simulatedService = service === "ssm" ? this.parameterStore : this.secretsManager;
        return awsAnswer(simulatedService.operation(signature.region, name, body));
      } catch (error) {
        if (error instanceof AwsError) return awsFailure(error);
        throw error;
      }
    };
    return {
      name: `${service}.${name.charAt(0).toLowerCase()}${name.slice(1)}`,
      ...(typeof item === "string" && { item }),
      errorResponses: awsErrorResponses(`${service}:${name}`),
      anonymous: "code" in signature,
      answer,
    };
  };
}
