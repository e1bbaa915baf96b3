import { vi } from "vitest";

/**
 * One process runs many test files, since starting one and loading the libraries costs a second. The libraries stay loaded;
 * what the project's own modules keep, each file begins with anew.
 */
vi.resetModules();
