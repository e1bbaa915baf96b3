import { AwsError } from "./errors.ts";

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
const MOST_DESCRIBED = 50;

/**
 * Simulates AWS Systems Manager Parameter Store with standard parameters:
 * https://docs.aws.amazon.com/systems-manager/latest/APIReference
 */
export class ParameterStore {
  readonly #parameters = new Map<string, Parameter>();

  /** Returns all values that a parameter had, oldest first. */
  history(region: string, name: string): string[] {
    return (this.#parameters.get(`${region}${name}`)?.versions ?? []).map(({ value }) => value);
  }

  /** Returns the number of versions of all parameters. */
  written(): number {
    return [...this.#parameters.values()].reduce((sum, { versions }) => sum + versions.length, 0);
  }

  value(region: string, name: string): string | undefined {
    return this.history(region, name).at(-1);
  }

  operation(region: string, name: string, body: Body): object {
    switch (name) {
      case "PutParameter":
        return this.#put(region, body);
      case "DescribeParameters":
        return this.#describe(region, body);
      case "GetParameter": {
        const found = this.#existing(region, body.Name);
        const Value = body.WithDecryption === true ? found.versions.at(-1)!.value : "AQICAHh...";
        return { Parameter: { Name: found.name, Type: found.type, Value, Version: found.versions.length } };
      }
      case "ListTagsForResource": {
        const tags = this.#existing(region, body.ResourceId, "InvalidResourceId").tags;
        return { TagList: [...tags].map(([Key, Value]) => ({ Key, Value })) };
      }
      case "AddTagsToResource": {
        const found = this.#existing(region, body.ResourceId, "InvalidResourceId");
        for (const [key, value] of tagsIn(body.Tags)) found.tags.set(key, value);
        return {};
      }
      case "DeleteParameter":
        this.#existing(region, body.Name);
        this.#parameters.delete(`${region}${body.Name}`);
        return {};
      default:
        throw new AwsError("UnknownOperationException", `${name} is not served.`);
    }
  }

  #existing(region: string, name: unknown, code = "ParameterNotFound"): Parameter {
    const found = this.#parameters.get(`${region}${name}`);
    if (!found) throw new AwsError(code, "");
    return found;
  }

  #put(region: string, body: Body): object {
    const { Name: name, Value: value, Type: type, Description: description, Overwrite: overwrite = false } = body;
    if (typeof name !== "string" || !/^[\w./-]{1,1011}$/.test(name) || (name.includes("/") && !name.startsWith("/"))) {
      throw validation("Parameter name must be a fully qualified name.");
    }
    if (/^\/?(aws|ssm)/i.test(name)) throw validation('Parameter name: can\'t be prefixed with "ssm" or "aws".');
    if (name.split("/").length > 16) throw new AwsError("HierarchyLevelLimitExceededException", "At most 15 levels.");
    if (typeof value !== "string" || value === "") throw validation("Parameter value can't be empty.");
    if (Buffer.byteLength(value) > 4096) {
      throw validation("Standard tier parameters support a maximum parameter value of 4096 characters.");
    }
    if (/^\s*\{\{.*\}\}\s*$/s.test(value)) throw validation("Parameter value: can't nest another parameter.");
    if (typeof description === "string" && description.length > 1024) throw validation("The description is too long.");
    const before = this.#parameters.get(`${region}${name}`);
    if (before && overwrite !== true) {
      throw new AwsError(
        "ParameterAlreadyExists",
        "The parameter already exists. To overwrite this value, set overwrite.",
      );
    }
    if (overwrite === true && body.Tags !== undefined) {
      throw validation("Invalid request: tags and overwrite can't be used together.");
    }
    if (!before && type === undefined) throw validation("A parameter type is required when you create a parameter.");
    const parameter = before ?? {
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
      throw new AwsError("InvalidFilterKey", "Only names that equal are looked for here.");
    }
    const own = [...this.#parameters].filter(([key]) => key.startsWith(region));
    const found = own.filter(([, { name }]) => filter === undefined || filter.Values.includes(name));
    return {
      Parameters: found.slice(0, MOST_DESCRIBED).map(([, { name, type, description, versions }]) => ({
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
