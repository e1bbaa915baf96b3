import { AwsError } from "./errors.ts";

/** A parameter. Its version number is the number of its `versions`. `at` is when a version was written, in milliseconds. */
interface Parameter {
  name: string;
  type: string;
  description: string | undefined;
  versions: { value: string; at: number }[];
  tags: Map<string, string>;
}

type Body = Record<string, unknown>;

/**
 * Maximum number of results in one response. Further pages are not implemented.
 * https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_DescribeParameters.html
 */
const MAX_DESCRIBED = 50;

/** Maximum size of a standard parameter's value, and maximum length of its description. */
const [MAX_VALUE_BYTES, MAX_DESCRIPTION_LENGTH] = [4096, 1024];

/**
 * Simulates AWS Systems Manager Parameter Store with standard parameters:
 * https://docs.aws.amazon.com/systems-manager/latest/APIReference
 */
export class ParameterStore {
  /** Key: region and name without a separator, such as `eu-central-1/app/key`. */
  readonly #parameters = new Map<string, Parameter>();

  /** Returns all values that a parameter had, oldest first. */
  history(region: string, name: string): string[] {
    return (this.#parameters.get(`${region}${name}`)?.versions ?? []).map(({ value }) => value);
  }

  /** Returns the number of versions of all parameters. */
  written(): number {
    return [...this.#parameters.values()].reduce((sum, { versions }) => sum + versions.length, 0);
  }

  /** Returns the current value of a parameter. */
  value(region: string, name: string): string | undefined {
    return this.history(region, name).at(-1);
  }

  /**
   * Runs the operation `name` of the API in a region, such as `PutParameter`.
   * @throws {AwsError}
   */
  operation(region: string, name: string, body: Body): object {
    switch (name) {
      case "PutParameter":
        return this.#put(region, body);
      case "DescribeParameters":
        return this.#describe(region, body);
      case "GetParameter": {
        const parameter = this.#existing(region, body.Name);
        // Without decryption AWS returns the ciphertext. This placeholder looks like the start of one.
        const Value = body.WithDecryption === true ? parameter.versions.at(-1)!.value : "AQICAHh...";
        return { Parameter: { Name: parameter.name, Type: parameter.type, Value, Version: parameter.versions.length } };
      }
      case "ListTagsForResource": {
        const tags = this.#existing(region, body.ResourceId, "InvalidResourceId").tags;
        return { TagList: [...tags].map(([Key, Value]) => ({ Key, Value })) };
      }
      case "AddTagsToResource": {
        const parameter = this.#existing(region, body.ResourceId, "InvalidResourceId");
        for (const [key, value] of tagsIn(body.Tags)) parameter.tags.set(key, value);
        return {};
      }
      case "DeleteParameter":
        this.#existing(region, body.Name);
        this.#parameters.delete(`${region}${body.Name}`);
        return {};
      default:
        throw new AwsError("UnknownOperationException", `${name} is not supported.`);
    }
  }

  #existing(region: string, name: unknown, code = "ParameterNotFound"): Parameter {
    const parameter = this.#parameters.get(`${region}${name}`);
    if (!parameter) throw new AwsError(code, "");
    return parameter;
  }

  #put(region: string, body: Body): object {
    const { Name: name, Value: value, Type: type, Description: description, Overwrite: overwrite = false } = body;
    if (typeof name !== "string" || !/^[\w./-]{1,1011}$/.test(name) || (name.includes("/") && !name.startsWith("/"))) {
      throw validation("Parameter name must be a fully qualified name.");
    }
    if (/^\/?(aws|ssm)/i.test(name)) throw validation('Parameter name: can\'t be prefixed with "ssm" or "aws".');
    if (name.split("/").length > 16) throw new AwsError("HierarchyLevelLimitExceededException", "At most 15 levels.");
    if (typeof value !== "string" || value === "") throw validation("Parameter value can't be empty.");
    if (Buffer.byteLength(value) > MAX_VALUE_BYTES) {
      throw validation("Standard tier parameters support a maximum parameter value of 4096 characters.");
    }
    if (/^\s*\{\{.*\}\}\s*$/s.test(value)) throw validation("Parameter value: can't nest another parameter.");
    if (typeof description === "string" && description.length > MAX_DESCRIPTION_LENGTH)
      throw validation("The description is too long.");
    const existing = this.#parameters.get(`${region}${name}`);
    if (existing && overwrite !== true) {
      throw new AwsError(
        "ParameterAlreadyExists",
        "The parameter already exists. To overwrite this value, set overwrite.",
      );
    }
    if (overwrite === true && body.Tags !== undefined) {
      throw validation("Invalid request: tags and overwrite can't be used together.");
    }
    if (!existing && type === undefined) throw validation("A parameter type is required when you create a parameter.");
    const parameter = existing ?? {
      name,
      type: String(type),
      description: undefined,
      versions: [],
      tags: new Map(tagsIn(body.Tags)),
    };
    if (typeof description === "string") parameter.description = description;
    parameter.versions.push({ value, at: Date.now() });
    this.#parameters.set(`${region}${name}`, parameter);
    return { Version: parameter.versions.length, Tier: "Standard" };
  }

  #describe(region: string, { ParameterFilters: filters }: Body): object {
    const [filter] = (filters ?? []) as { Key: string; Option?: string; Values: string[] }[];
    if (filter && (filter.Key !== "Name" || filter.Option !== "Equals")) {
      throw new AwsError("InvalidFilterKey", "Only the filter Name with the option Equals is supported.");
    }
    const inRegion = [...this.#parameters].filter(([key]) => key.startsWith(region));
    const matching = inRegion.filter(([, { name }]) => filter === undefined || filter.Values.includes(name));
    return {
      Parameters: matching.slice(0, MAX_DESCRIBED).map(([, { name, type, description, versions }]) => ({
        Name: name,
        Type: type,
        Description: description,
        Version: versions.length,
        LastModifiedDate: versions.at(-1)!.at / 1000,
        Tier: "Standard",
      })),
    };
  }
}

const tagsIn = (tags: unknown): [string, string][] =>
  ((Array.isArray(tags) ? tags : []) as { Key: string; Value: string }[]).map(({ Key, Value }) => [Key, Value]);

const validation = (message: string) => new AwsError("ValidationException", message);
