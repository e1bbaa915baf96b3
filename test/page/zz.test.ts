import "./lists.ts";
