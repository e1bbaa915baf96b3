/** What a row holds as a request brings it: values, and types beside those that JSON can't tell. */
type Properties = Record<string, unknown>;

/** A row that Azurite is about to keep. */
interface Entity {
  readonly PartitionKey: string;
  readonly RowKey: string;
  readonly lastModifiedTime: string;
  properties: Properties;
}

/** What is used of Azurite's `NormalizedEntity`. */
interface Normalized {
  normalize(): Entity;
  toResponseString(...of: unknown[]): string;
}

/** What is used of Azurite's `table/entity/NormalizedEntity`. */
interface Entities {
  NormalizedEntity: new (entity: Entity) => Normalized;
}

/** What is used of Azurite's `TableHandler`. */
interface Handler {
  checkProperties(context: unknown, properties: Properties): void;
}

/** Characters that a text may have: https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model#property-types */
const MOST_UNITS = 32 * 1024;

/**
 * Spares Azurite a quarter of what it does to write a row: it looks for what it would refuse in each property by several
 * look-ups, and makes an object of each to make the row's properties anew, also where they come as it would make them.
 * What it keeps, answers and refuses is the same.
 */
export function keepRowsAsTheyCome(entities: Entities, { prototype: handler }: { prototype: Handler }): void {
  const { NormalizedEntity } = entities;
  entities.NormalizedEntity = class implements Normalized {
    readonly #entity: Entity;
    constructor(entity: Entity) {
      this.#entity = entity;
    }
    normalize(): Entity {
      const { properties, lastModifiedTime } = this.#entity;
      if (!isNormal(this.#entity)) return new NormalizedEntity(this.#entity).normalize();
      properties.Timestamp = lastModifiedTime;
      properties[`Timestamp${TYPE}`] = "Edm.DateTime";
      return this.#entity;
    }
    toResponseString(...of: unknown[]): string {
      return new NormalizedEntity(this.#entity).toResponseString(...of);
    }
  };

  const { checkProperties } = handler;
  handler.checkProperties = function (context, properties) {
    let harmless = isPlain(properties);
    for (const name in properties) harmless &&= isHarmless(name, properties[name]);
    if (!harmless) checkProperties.call(this, context, properties);
  };
}

/** Whether it is an object as any other: a request may name what every object has. */
const isPlain = (properties: Properties): boolean =>
  Object.getPrototypeOf(properties) === Object.prototype && !Object.hasOwn(properties, "hasOwnProperty");

/** Whether nothing can be wrong with it: with a type of these two no text is refused for what it says, and bytes are fewer than their text. */
function isHarmless(name: string, value: unknown): boolean {
  if (isType(name)) return value === "Edm.Double" || value === "Edm.Binary";
  return typeof value === "string" ? value.length <= MOST_UNITS : isNumberOrBoolean(value);
}

const TYPE = "@odata.type";
const AT = TYPE.charCodeAt(0);
const isType = (name: string): boolean => name.charCodeAt(name.length - TYPE.length) === AT && name.endsWith(TYPE);
const KEYS = ["PartitionKey", "RowKey"];
const isNumberOrBoolean = (value: unknown): boolean => typeof value === "number" || typeof value === "boolean";

/** Names that every object has are left out by Azurite. */
const INHERITED: Properties = {};

/**
 * Whether its properties are as `NormalizedEntity` would make them, but for the timestamp: first the keys, then values of
 * which each stands before its type.
 */
function isNormal({ PartitionKey, RowKey, properties, lastModifiedTime }: Entity): boolean {
  // Another one may get a Z.
  if (!lastModifiedTime.endsWith("Z") || !isPlain(properties)) return false;
  if (properties.PartitionKey !== PartitionKey || properties.RowKey !== RowKey) return false;
  let at = 0;
  let before = "";
  let value: unknown;
  for (const name in properties) {
    if (at < KEYS.length && name !== KEYS[at]) return false;
    at++;
    if (isType(name)) {
      const type = properties[name];
      if (name.length !== before.length + TYPE.length || !name.startsWith(before) || KEYS.includes(before))
        return false;
      if (
        !(type === "Edm.Double" && typeof value === "number") &&
        !(type === "Edm.Binary" && typeof value === "string")
      )
        return false;
      value = undefined;
    } else {
      if (isFraction(value) || name === "Timestamp" || INHERITED[name] !== undefined) return false;
      before = name;
      value = properties[name];
      if (typeof value !== "string" && !isNumberOrBoolean(value)) return false;
    }
  }
  return !isFraction(value);
}

/** Its type is added where none came with it. */
const isFraction = (value: unknown): boolean => typeof value === "number" && !Number.isInteger(value);
