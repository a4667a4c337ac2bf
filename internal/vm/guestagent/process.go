package main

func runProcess() {}
